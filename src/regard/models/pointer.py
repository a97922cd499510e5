"""The pointer-generator: a translator that can also point at a word of the source and say it (See, Liu & Manning 2017).

    p(w) = g_t softmax(W v_t)(w) + (1 - g_t) sum of the attention to every w in the source,   g_t = sigmoid(u [h; c; y])

So it says names that it has never seen. With coverage it remembers what it has looked at, and is charged for looking
there again: sum_i min(a_i, c_i).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.decoders import WEIGHTS, Bahdanau, Decoded
from regard.models.embedding import Words
from regard.models.predictions import Mixture, Prediction
from regard.models.rnn_encoder import Reader
from regard.models.seq2seq import Seq2Seq, Standing


class PointerGenerator(Seq2Seq):
    """Seq2Seq with one more choice at each step: make a word, or take one.

    Sources and targets may hold ids beyond the vocabulary (regard.text.tokenizers.oov); `words` read them as unknown.
    A word has one number on both sides, so the reader's words are as many. `charge`: what looking again costs, where
    the decoder has coverage.
    """

    copies = True

    def __init__(
        self, reader: Reader, decoder: Bahdanau, words: Words, dropout: float = 0.0, charge: float = 1.0
    ) -> None:
        super().__init__(reader, decoder, words, dropout)
        if len(reader.words) != len(words) or words.unknown is None or reader.words.unknown is None:
            raise SettingError(
                f"{len(reader.words)} words to read and {len(words)} to write with",
                "as many of both, with an unknown token in each",
                where="PointerGenerator",
            )
        self.charge = charge
        self.generate = nn.Linear(decoder.parts, 1)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, Tensor | None]:
        rows = len(source)
        if not rows:
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        read = self.reader(source, lengths)
        words = self.dropout(self.words(target))
        found = self.decoder.run(words, self.decoder.begin(read), WEIGHTS)
        said = self._mixed(found, source)
        mixture = Mixture(said.logits[:rows], said.share[:rows], said.weights()[:rows], said.seen[:rows])
        return mixture, self._again(found)[:rows] if self.charged else None

    @property
    def charged(self) -> bool:
        return isinstance(self.decoder, Bahdanau) and self.decoder.coverage is not None and self.charge > 0

    def step(self, state: Standing, tokens: Tensor) -> tuple[Tensor, Tensor | None, Standing]:
        """ln p (B, V + extra): ids from V on are those of the source, which count from V without gaps."""
        found, writing = self.decoder.step(self.words(tokens), state.writing)
        assert found.weights is not None
        logs = self._mixed(found, state.source).log_probs().squeeze(1)
        return logs, found.weights.squeeze(1), replace(state, writing=writing)

    def _mixed(self, found: Decoded, source: Tensor) -> Mixture:
        assert found.weights is not None
        share = torch.sigmoid(self.generate(found.parts)).squeeze(-1)
        return Mixture(self.logits(found), share, found.weights * (1 - share).unsqueeze(-1), source)

    def _again(self, found: Decoded) -> Tensor:
        """(B, T): what each step looks at again, as far as it had been looked at before."""
        assert found.weights is not None
        before = found.weights.cumsum(1) - found.weights
        return self.charge * torch.minimum(found.weights, before).sum(-1)
