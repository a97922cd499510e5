"""Seq2Seq: a recurrent encoder-decoder translator, trained with teacher forcing.

    states = encoder(source);   v_t = decoder(y_t-1, ..., states);   p(y_t) = softmax(W v_t)

The decoder decides the kind of attention: Bottleneck (none), Bahdanau, Luong, LuongInputFeeding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.cross_entropy import Logits, Prediction
from regard.models.decoders import OBSERVE_NOTHING, Decoder, DecoderOutput, DecoderState
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.rnn_encoder import BiRNNEncoder

LOGIT_SCALE = 3.0  # half the vocabulary of a small corpus is rare: larger logits learn it from fewer occurrences


@dataclass(frozen=True, eq=False)
class Seq2SeqState:
    """The decoding state of B rows: the decoder's, the `source` (B, S), and which of the sources each row has (B,)."""

    decoder: DecoderState
    source: Tensor
    source_rows: Tensor

    def rows(self, rows: Tensor) -> Seq2SeqState:
        source_rows = self.source_rows.index_select(0, rows)
        same = torch.equal(source_rows, self.source_rows)  # in a beam mostly so: then there is nothing to copy
        source = self.source if same else self.source.index_select(0, rows)
        return Seq2SeqState(self.decoder.rows(rows, same), source, source_rows)


class Seq2Seq(nn.Module):
    """An encoder, a decoder, and a softmax tied to the target embedding.

    Seq2Seq(BiRNNEncoder(WordEmbedding(8000, 128), 256), Bahdanau(128, 256, 256), WordEmbedding(9000, 128))

    It is a Stepper: `start`, `step`, `reorder`. With `num_sampled`, training uses a sampled softmax: over the words of
    the batch and about `num_sampled` others. `eos` is the token that targets end with.
    """

    copies = False  # whether it can output words outside the vocabulary

    def __init__(
        self,
        encoder: BiRNNEncoder,
        decoder: Decoder,
        words: WordEmbedding,
        dropout: float = 0.0,
        num_sampled: int = 0,
        eos: int | None = None,
    ) -> None:
        super().__init__()
        if num_sampled and eos is None:
            raise SettingError("num_sampled needs eos, the id that targets end with", where="Seq2Seq")
        self.num_sampled, self.eos = num_sampled, eos
        self.encoder, self.decoder, self.words = encoder, decoder, words
        self.softmax = OutputProjection(words.width, len(words), words, LOGIT_SCALE)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, Tensor | None]:
        """source (B, S) of which `lengths` (B,) are real, target (B, T): the prediction after each word of the target.

        The second result is an extra loss at each position, (B, T) or None.
        """
        rows = len(source)
        if not rows:  # a rank without rows runs a dummy row, so that all parameters take part
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        encoded = self.encoder(source, lengths)
        words = self.dropout(self.words(target))
        found = self.decoder(words, self.decoder.initial_state(encoded), OBSERVE_NOTHING)
        if self.num_sampled and self.training:
            # the next word is another word of the targets, or eos
            targets = nn.functional.pad(target.flatten(), (0, 1), value=self.eos)
            return self.softmax.sampled(self.dropout(found.vectors)[:rows], targets, self.num_sampled), None
        return Logits(self.logits(found)[:rows]), None

    def logits(self, found: DecoderOutput) -> Tensor:
        """(..., V), from the vectors of the decoder."""
        logits: Tensor = self.softmax(self.dropout(found.vectors))
        return logits

    def start(self, inputs: Tensor, lengths: Tensor) -> Seq2SeqState:
        """The state before the first word, of sources (B, S)."""
        rows = torch.arange(len(inputs), device=inputs.device)
        return Seq2SeqState(self.decoder.initial_state(self.encoder(inputs, lengths)), inputs, rows)

    def step(self, state: Seq2SeqState, tokens: Tensor) -> tuple[Tensor, Tensor | None, Seq2SeqState]:
        """After these words (B,): ln p of the next (B, V), the attention to the source (B, S), and the new state."""
        found, decoder = self.decoder.step(self.words(tokens), state.decoder)
        weights = None if found.weights is None else found.weights.squeeze(1)
        return Logits(self.logits(found)).log_probs().squeeze(1), weights, replace(state, decoder=decoder)

    def reorder(self, state: Seq2SeqState, rows: Tensor) -> Seq2SeqState:
        return state.rows(rows)
