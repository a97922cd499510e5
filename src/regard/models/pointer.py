"""The pointer-generator, a translator that can copy words of its source: its gate p_gen, and the coverage loss.

See, Liu & Manning 2017:

    p(w) = p_gen softmax(W v_t)(w) + (1 - p_gen) sum of the attention to every w in the source
    p_gen = sigmoid(u [h; c; y])

So it can output names that are in no vocabulary. The coverage vector c sums the attention of the steps before; the
coverage loss sum_i min(a_i, c_i) penalises attending to the same words again.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.cross_entropy import Mixture, Prediction
from regard.models.decoders import OBSERVE_WEIGHTS, Bahdanau, DecoderOutput
from regard.models.embedding import WordEmbedding
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq, Seq2SeqState


class PointerGenerator(Seq2Seq):
    """Seq2Seq that generates a word or copies one from the source at each step.

    Sources and targets may hold ids beyond the vocabulary (regard.text.tokenizers.oov), which embed as unknown. Both
    sides share one vocabulary. `coverage_weight`: of the coverage loss, where the decoder has coverage.
    """

    copies = True

    def __init__(
        self,
        encoder: BiRNNEncoder,
        decoder: Bahdanau,
        words: WordEmbedding,
        dropout: float = 0.0,
        coverage_weight: float = 1.0,
    ) -> None:
        super().__init__(encoder, decoder, words, dropout)
        if len(encoder.words) != len(words) or words.unknown is None or encoder.words.unknown is None:
            raise SettingError(
                f"{len(encoder.words)} source words and {len(words)} target words",
                "one vocabulary for both, with an unknown token",
                where="PointerGenerator",
            )
        self.coverage_weight = coverage_weight
        self.p_gen = nn.Linear(decoder.feature_dim, 1)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, Tensor | None]:
        rows = len(source)
        if not rows:
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        encoded = self.encoder(source, lengths)
        words = self.dropout(self.words(target))
        found = self.decoder(words, self.decoder.initial_state(encoded), OBSERVE_WEIGHTS)
        full = self._mixture(found, source)
        mixture = Mixture(full.logits[:rows], full.p_gen[:rows], full.weights()[:rows], full.copy_tokens[:rows])
        return mixture, self._coverage_loss(found)[:rows] if self.has_coverage_loss else None

    @property
    def has_coverage_loss(self) -> bool:
        return isinstance(self.decoder, Bahdanau) and self.decoder.coverage is not None and self.coverage_weight > 0

    def step(self, state: Seq2SeqState, tokens: Tensor) -> tuple[Tensor, Tensor | None, Seq2SeqState]:
        """ln p (B, V + extra): ids from V on are the unknown words of the source, numbered from V without gaps."""
        found, decoder = self.decoder.step(self.words(tokens), state.decoder)
        assert found.weights is not None
        logs = self._mixture(found, state.source).log_probs().squeeze(1)
        return logs, found.weights.squeeze(1), replace(state, decoder=decoder)

    def _mixture(self, found: DecoderOutput, source: Tensor) -> Mixture:
        assert found.weights is not None
        p_gen = torch.sigmoid(self.p_gen(found.features)).squeeze(-1)
        return Mixture(self.logits(found), p_gen, found.weights * (1 - p_gen).unsqueeze(-1), source)

    def _coverage_loss(self, found: DecoderOutput) -> Tensor:
        """(B, T): sum_i min(a_i, c_i) of each step, times the weight."""
        assert found.weights is not None
        coverage = found.weights.cumsum(1) - found.weights
        return self.coverage_weight * torch.minimum(found.weights, coverage).sum(-1)
