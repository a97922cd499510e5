"""ELMo: words that have read their neighbours, from the left and from the right, layer upon layer.

Peters et al. 2018. Two language models share the words below and the softmax above: one reads forth and predicts the
next word, one reads back and predicts the one before. What they have in mind at a word, in all their layers, is the
word's vector in this place; a task mixes the layers to its liking (equation 1).
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.errors import SettingError, ShapeError
from regard.models.char_cnn import WordVectors
from regard.models.rnn import turned


class DeepReader(nn.Module):
    """Words and two stacks of LSTMs over them, which never see each other.

    DeepReader(Looked(8000, 64, unknown=1), layers=2)

    From the second layer on, a layer adds to what it reads. A reader of no layers knows words by themselves.
    """

    def __init__(self, words: WordVectors, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 0:
            raise SettingError(f"layers={layers}", "0 or more", where="DeepReader")
        self.words = cast(nn.Module, words)
        self.vocabulary, self.width, self.layers = words.vocabulary, words.width, layers
        self.forth = nn.ModuleList(nn.LSTM(words.width, words.width, batch_first=True) for _ in range(layers))
        self.back = nn.ModuleList(nn.LSTM(words.width, words.width, batch_first=True) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: states (B, layers + 1, T, 2 x width).

        The first half of a state has read all up to its word, the second half all from the last word back to it; in
        layer 0 both are the word itself. `spellings` (E, C): of the words whose ids are the vocabulary's size or more.
        """
        x = self.words(inputs, spellings)
        forth = self._read(self.forth, x)
        back = [turned(layer, lengths) for layer in self._read(self.back, turned(x, lengths))]
        return torch.stack([torch.cat(both, -1) for both in zip(forth, back, strict=True)], 1)

    def _read(self, stack: nn.ModuleList, x: Tensor) -> list[Tensor]:
        """x (B, T, width), and what each layer makes of it."""
        layers = [x]
        for number, lstm in enumerate(stack):
            read, _ = lstm(self.dropout(layers[-1]))
            layers.append(read + layers[-1] if number else read)
        return layers


class Neighbours(NamedTuple):
    """Logits (B, T, V) of the token after each place, and of the one before it."""

    after: Tensor
    before: Tensor


class ELMo(nn.Module):
    """Two language models over one reader, one softmax for both.

    ELMo(Looked(8000, 64, unknown=1), layers=2)
    ELMo(Spelled(spelled_vocabulary(tokenizer), 64, unknown=1), layers=2)      # by letters: no word is unknown
    """

    def __init__(self, words: WordVectors, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="ELMo")
        self.reader = DeepReader(words, layers, dropout)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(words.width, words.vocabulary)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Neighbours:
        """inputs (B, T), of which the first `lengths` (B,) are real: what each place says about its neighbours."""
        forth, back = self.dropout(self.states(inputs, lengths, spellings)[:, -1]).chunk(2, -1)
        return Neighbours(self.output(forth), self.output(back))

    def states(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, 2 x width), as DeepReader gives them."""
        return cast(Tensor, self.reader(inputs, lengths, spellings))


class ScalarMix(nn.Module):
    """gamma sum_j softmax(s)_j h_j: one number for each of `count` layers, and one for all; it begins as their mean."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights(self) -> Tensor:
        """(count,), which sum to one."""
        return self.scores.softmax(0)

    def forward(self, states: Tensor) -> Tensor:
        """states (B, count, T, D): (B, T, D)."""
        if states.size(1) != len(self.scores):
            raise ShapeError(f"{states.size(1)} layers", f"{len(self.scores)}", where="ScalarMix")
        return self.gamma * torch.einsum("l,bltd->btd", self.weights, states)


class Tagger(nn.Module):
    """A tag for each word: the layers of a reader, mixed, and a linear classifier.

    Tagger(DeepReader(Looked(8000, 64, unknown=1), layers=2), 17)
    Tagger(elmo.reader, 17, tuned=False)               # what ELMo knows stays as it is; mix and classifier are learned
    """

    def __init__(self, reader: DeepReader, classes: int, dropout: float = 0.0, tuned: bool = True) -> None:
        super().__init__()
        self.reader, self.tuned = reader.requires_grad_(tuned), tuned
        self.mix = ScalarMix(reader.layers + 1)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(2 * reader.width, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: logits (B, T, C)."""
        mixed = self.mix(self.states(inputs, lengths, spellings))
        return cast(Tensor, self.classes(self.dropout(mixed)))

    def states(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, 2 x width), as DeepReader gives them."""
        with torch.set_grad_enabled(self.tuned and torch.is_grad_enabled()):
            return cast(Tensor, self.reader(inputs, lengths, spellings))

    def train(self, mode: bool = True) -> Tagger:
        """A reader that is not tuned is not dropped out either: its states are features."""
        super().train(mode)
        self.reader.train(mode and self.tuned)
        return self
