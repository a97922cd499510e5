"""Sequence to sequence: read a sentence, then write another one word by word.

    states = reader(source);   v_t = decoder(y_t-1, ..., states);   p(y_t) = softmax(W v_t)

Which history of attention it is, is the decoder that it is given: Bottleneck, Bahdanau, Luong, FedLuong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.decoders import NOTHING, Decoded, Decoder, Writing
from regard.models.embedding import Softmax, Words
from regard.models.predictions import Logits, Prediction
from regard.models.rnn_encoder import Reader

GAIN = 3.0  # of the softmax: half the vocabulary of a small corpus comes up a few times only


@dataclass(frozen=True, eq=False)
class Standing:
    """Where the writing of B rows stands; `source` (B, S) and `sentence` (B,), which of the sources a row reads."""

    writing: Writing
    source: Tensor
    sentence: Tensor

    def rows(self, rows: Tensor) -> Standing:
        sentence = self.sentence.index_select(0, rows)
        same = torch.equal(
            sentence, self.sentence
        )  # survivors of a beam mostly stay with their source: nothing to copy
        source = self.source if same else self.source.index_select(0, rows)
        return Standing(self.writing.rows(rows, same), source, sentence)


class Seq2Seq(nn.Module):
    """A reader, a decoder, and a softmax whose vectors are the decoder's own words.

    Seq2Seq(Reader(Words(8000, 128), 256), Bahdanau(128, 256, 256), Words(9000, 128))

    It is a Stepper: `start`, `step`, `reorder`. With `negatives`, the softmax is taken in training over the words of
    the batch and about so many others, not over all; `last` is the word that targets end with.
    """

    copies = False  # whether it can say words that are in no vocabulary

    def __init__(
        self,
        reader: Reader,
        decoder: Decoder,
        words: Words,
        dropout: float = 0.0,
        negatives: int = 0,
        last: int | None = None,
    ) -> None:
        super().__init__()
        if negatives and last is None:
            raise SettingError("negatives without a last word", "the id that targets end with", where="Seq2Seq")
        self.negatives, self.last = negatives, last
        self.reader, self.decoder, self.words = reader, decoder, words
        self.softmax = Softmax(words.width, len(words), words, GAIN)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, Tensor | None]:
        """source (B, S) of which `lengths` (B,) are real, target (B, T): what comes after each word of the target.

        Beside it, what the model wants added to the loss at each place, (B, T) or None.
        """
        rows = len(source)
        if not rows:  # a rank without rows: one that does not count, so that the weights take part all the same
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        read = self.reader(source, lengths)
        words = self.dropout(self.words(target))
        found = self.decoder.run(words, self.decoder.begin(read), NOTHING)
        if self.negatives and self.training:
            # what comes after a word of a target is another one of them, or its end
            surely = nn.functional.pad(target.flatten(), (0, 1), value=self.last)
            return self.softmax.among(self.dropout(found.vectors)[:rows], surely, self.negatives), None
        return Logits(self.logits(found)[:rows]), None

    def logits(self, found: Decoded) -> Tensor:
        """(..., V) of the vectors that the decoder predicts from."""
        logits: Tensor = self.softmax(self.dropout(found.vectors))
        return logits

    def start(self, inputs: Tensor, lengths: Tensor) -> Standing:
        """The state before the first word, of sources (B, S)."""
        rows = torch.arange(len(inputs), device=inputs.device)
        return Standing(self.decoder.begin(self.reader(inputs, lengths)), inputs, rows)

    def step(self, state: Standing, tokens: Tensor) -> tuple[Tensor, Tensor | None, Standing]:
        """After these words (B,): ln p of the next (B, V), the attention to the source (B, S), and the state."""
        found, writing = self.decoder.step(self.words(tokens), state.writing)
        weights = None if found.weights is None else found.weights.squeeze(1)
        return Logits(self.logits(found)).log_probs().squeeze(1), weights, replace(state, writing=writing)

    def reorder(self, state: Standing, rows: Tensor) -> Standing:
        return state.rows(rows)
