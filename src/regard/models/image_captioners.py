"""Image captioning: a recurrent decoder that attends to places of a picture (Show, Attend and Tell), or a Transformer.

    states = encoder(pixels);   c_t = beta_t attend(h_t-1, states);   p(y_t) = softmax(W [h_t; c_t; y_t-1])

Xu et al. 2015. Both are Steppers, as translators are, with pixels (B, H, W, 3) in the place of the source; the weights
of a step are over the patches of the encoder's grid, row by row. `doubly_stochastic` is that paper's penalty.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from regard.attention import Attended, KVCache, Observe, TapListener, listen
from regard.attention.masks import Causal
from regard.models.blocks import InputEmbedding
from regard.models.cross_entropy import Logits, Prediction
from regard.models.decoders import OBSERVE_NOTHING, OBSERVE_WEIGHTS, Bahdanau
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.image_encoders import ImageEncoder
from regard.models.rnn_encoder import EncoderOutput
from regard.models.seq2seq import Seq2Seq, Seq2SeqState
from regard.models.transformer import Transformer, TransformerState, memory_cache


def doubly_stochastic(weights: Tensor, steps: Tensor) -> Tensor:
    """Doubly stochastic attention: sum_i (1 - sum_t a_ti)^2, weights (B, T, S) of real `steps` (B, T): (B,).

    Weights sum to one over the places; this asks that they sum to one over the steps too, so that nothing is left out
    (Xu et al. 2015, equation 14).
    """
    received = (weights * steps.unsqueeze(-1)).sum(1)
    return (1 - received).square().sum(-1)


class RecurrentCaptioner(Seq2Seq):
    """Show, Attend and Tell: an image encoder, and an LSTM or GRU with soft additive attention over its grid.

    RecurrentCaptioner(ConvEncoder(64, 4, 64), Bahdanau(64, 128, 64, gate=True), WordEmbedding(40, 64))

    The decoder starts from the mean of the grid's states. Its attention is at the place "decoder".
    """

    encoder: ImageEncoder  # type: ignore[assignment]

    def __init__(self, encoder: nn.Module, decoder: Bahdanau, words: WordEmbedding, dropout: float = 0.0) -> None:
        super().__init__(encoder, decoder, words, dropout)  # type: ignore[arg-type]

    def forward(  # type: ignore[override]
        self, pixels: Tensor, target: Tensor, weights: bool = False
    ) -> tuple[Prediction, Tensor | None]:
        """The prediction after each word of target (B, T); with `weights` also those of each step, (B, T, S)."""
        rows = len(pixels)
        if not rows:  # a rank without rows runs a dummy row, so that all parameters take part
            pixels, target = pixels.new_zeros(1, *pixels.shape[1:]), target.new_zeros(1, 1)
        words = self.dropout(self.words(target))
        observe = OBSERVE_WEIGHTS if weights else OBSERVE_NOTHING
        found = self.decoder(words, self.decoder.initial_state(self._encode(pixels)), observe)
        return Logits(self.logits(found)[:rows]), None if found.weights is None else found.weights[:rows]

    def start(self, inputs: Tensor, lengths: Tensor | None = None) -> Seq2SeqState:
        """The state before the first word, of pixels (B, H, W, 3); pictures have no lengths."""
        rows = torch.arange(len(inputs), device=inputs.device)
        return Seq2SeqState(self.decoder.initial_state(self._encode(inputs)), rows, rows)

    def _encode(self, pixels: Tensor) -> EncoderOutput:
        states, summary = self.encoder(pixels)
        states = self.dropout(states)
        return EncoderOutput(states, states, None, summary)


class TransformerCaptioner(Transformer):
    """An image encoder, and Transformer decoder blocks whose cross-attention is over its grid.

    The encoder is as wide as the decoder. Weights that are reported are the mean over the heads of `alignment_layer`.
    """

    encoder: ImageEncoder  # type: ignore[assignment]

    def __init__(
        self,
        encoder: nn.Module,
        embedding: InputEmbedding,
        blocks: nn.ModuleList,
        final_norm: nn.Module | None = None,
        output: OutputProjection | None = None,
        *,
        alignment_layer: int = -1,
    ) -> None:
        super().__init__(encoder, embedding, blocks, final_norm, output, alignment_layer=alignment_layer)  # type: ignore[arg-type]

    def forward(  # type: ignore[override]
        self, pixels: Tensor, target: Tensor, weights: bool = False
    ) -> tuple[Prediction, Tensor | None]:
        """As of the RecurrentCaptioner."""
        rows = len(pixels)
        if not rows:
            pixels, target = pixels.new_zeros(1, *pixels.shape[1:]), target.new_zeros(1, 1)
        heard: list[Tensor] = []

        def on_attention(place: str, got: Attended) -> None:
            assert got.weights is not None
            heard.append(got.weights.mean(1)[:rows])

        listener = TapListener({self._alignment_attention.tap: "alignment"}, Observe(weights=True), on_attention)
        memory, x = self.encoder(pixels).states, self.embedding(target)
        with listen(listener) if weights else nullcontext():
            for block in self.decoder:
                x = block(x, memory, mask=Causal())
        return Logits(self.output(self.final_norm(x)[:rows])), heard[0] if weights else None

    def start(self, inputs: Tensor, lengths: Tensor | None = None) -> TransformerState:
        """The state before the first word, of pixels (B, H, W, 3); pictures have no lengths."""
        memory = self.encoder(inputs).states
        caches = tuple((KVCache(), memory_cache(block, memory)) for block in self.decoder)
        rows = torch.arange(len(inputs), device=inputs.device)
        return TransformerState(memory, torch.full_like(rows, memory.size(1)), rows, caches)
