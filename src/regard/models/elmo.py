"""ELMo: contextual word vectors from a deep bidirectional language model (BiLSTM), and a tagger on them.

Peters et al. 2018. Two language models share the word vectors and the softmax: the forward one predicts the next word,
the backward one the word before. Their states at a word, in all layers, are the word's contextual vectors; a task
learns a weighted average of the layers (scalar mix, equation 1).
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.errors import SettingError, ShapeError
from regard.models.char_cnn import WordVectors
from regard.models.rnn import reverse_padded


class BiLSTMStack(nn.Module):
    """Word vectors and two stacks of LSTMs over them, forward and backward, independent of each other.

    BiLSTMStack(WordTable(8000, 64, unknown=1), layers=2)

    Layers from the second on have a residual connection. With no layers the states are the word vectors themselves.
    """

    def __init__(self, words: WordVectors, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 0:
            raise SettingError(f"layers={layers}", "0 or more", where="BiLSTMStack")
        self.words = cast(nn.Module, words)
        self.vocabulary, self.width, self.layers = words.vocabulary, words.width, layers
        self.forward_rnn = nn.ModuleList(nn.LSTM(words.width, words.width, batch_first=True) for _ in range(layers))
        self.backward_rnn = nn.ModuleList(nn.LSTM(words.width, words.width, batch_first=True) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: states (B, layers + 1, T, 2 x width).

        The first half of a state is of the forward LSTM, the second of the backward one; in layer 0 both are the word
        vector. `spellings` (E, C): of the words whose ids are the vocabulary's size or more.
        """
        x = self.words(inputs, spellings)
        forward = self._run(self.forward_rnn, x)
        reversed_x = reverse_padded(x, lengths)
        backward = [reverse_padded(layer, lengths) for layer in self._run(self.backward_rnn, reversed_x)]
        return torch.stack([torch.cat(both, -1) for both in zip(forward, backward, strict=True)], 1)

    def _run(self, stack: nn.ModuleList, x: Tensor) -> list[Tensor]:
        """x (B, T, width), and the output of each layer."""
        layers = [x]
        for number, lstm in enumerate(stack):
            states, _ = lstm(self.dropout(layers[-1]))
            layers.append(states + layers[-1] if number else states)
        return layers


class BiLMLogits(NamedTuple):
    """Logits (B, T, V) of the forward language model (of the next token) and of the backward one (of the previous)."""

    forward: Tensor
    backward: Tensor


class ELMo(nn.Module):
    """A bidirectional language model: the BiLSTM stack and one softmax for both directions.

    ELMo(WordTable(8000, 64, unknown=1), layers=2)
    ELMo(CharCNN(spelled_vocabulary(tokenizer), 64, unknown=1), layers=2)      # from characters: no word is unknown
    """

    def __init__(self, words: WordVectors, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="ELMo")
        self.encoder = BiLSTMStack(words, layers, dropout)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(words.width, words.vocabulary)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> BiLMLogits:
        """inputs (B, T), of which the first `lengths` (B,) are real: the logits of next and previous tokens."""
        forward, backward = self.dropout(self.states(inputs, lengths, spellings)[:, -1]).chunk(2, -1)
        return BiLMLogits(self.output(forward), self.output(backward))

    def states(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, 2 x width), as BiLSTMStack gives them."""
        return cast(Tensor, self.encoder(inputs, lengths, spellings))


class ScalarMix(nn.Module):
    """Scalar mix: gamma sum_j softmax(s)_j h_j, a learned average of `count` layers; initially their mean."""

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
    """Sequence tagging: a scalar mix of the layers of a BiLSTM stack, and a linear classifier of each word.

    Tagger(BiLSTMStack(WordTable(8000, 64, unknown=1), layers=2), 17)
    Tagger(elmo.encoder, 17, finetune=False)           # ELMo is frozen; mix and classifier are learned
    """

    def __init__(self, encoder: BiLSTMStack, classes: int, dropout: float = 0.0, finetune: bool = True) -> None:
        super().__init__()
        self.encoder, self.finetune = encoder.requires_grad_(finetune), finetune
        self.mix = ScalarMix(encoder.layers + 1)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(2 * encoder.width, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: logits (B, T, C)."""
        mixed = self.mix(self.states(inputs, lengths, spellings))
        return cast(Tensor, self.classes(self.dropout(mixed)))

    def states(self, inputs: Tensor, lengths: Tensor, spellings: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, 2 x width), as BiLSTMStack gives them."""
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            return cast(Tensor, self.encoder(inputs, lengths, spellings))

    def train(self, mode: bool = True) -> Tagger:
        """A frozen encoder has no dropout either: its states are features."""
        super().train(mode)
        self.encoder.train(mode and self.finetune)
        return self
