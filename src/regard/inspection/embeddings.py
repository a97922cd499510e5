"""The vectors of words in their context, from any model that has `states`: ELMo, BERT, and what is built on them.

>>> embedder = Embedder.of("runs/elmo")
>>> embedder.embed(["he took a train .", "he likes to train ."], layer=2)[0].vectors        # (5, D)
>>> Embedder.of("runs/bert").pool(["he took a train ."], "mean")[0].vectors                  # (1, D): of the whole text
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.errors import SettingError
from regard.files import write_whole
from regard.inspection.rows import rows_of
from regard.models.bert import Bert, MaskedLM
from regard.models.heads import OnText, OnTokens, Reading, Summary
from regard.models.pooling import PoolingClassifier
from regard.runs.run import Run
from regard.text.tokenizers.encoding import Encoding
from regard.text.tokenizers.open import compacted, opened
from regard.text.tokenizers.spelling import spelled_words
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.words import spaced

ROWS = 32  # texts read at once
Layer = int | Literal["mix", "all"]
Pool = Literal["cls", "mean", "attention"]


class HasStates(Protocol):
    """A model whose words have a state in every layer; layer 0 is the word by itself."""

    def states(self, inputs: Tensor, lengths: Tensor, more: Tensor | None = None, /) -> Tensor:
        """inputs (B, T): (B, L, T, D). `more`: spellings where the model reads letters, segments for a BERT."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """The words of a text, N of them, and their vectors: (N, D), or (N, L, D) where all layers were asked for."""

    words: tuple[str, ...]
    vectors: Tensor

    def nearest(self) -> list[tuple[int, float]]:
        """For each word the number of the most similar other one of the text, and their cosine; none for one word."""
        if len(self.words) < 2:
            return []
        units = nn.functional.normalize(self.vectors.flatten(1).double(), dim=-1)
        best = (units @ units.T).fill_diagonal_(-torch.inf).max(-1)
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Embedder:
    """A trained model with its tokenizer; `question`: how it has learned to look over a text, if it has."""

    model: HasStates
    tokenizer: Tokenizer
    question: Summary | None = None

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Embedder:
        """The model of a run folder."""
        its = Run.open(run)
        its.expect_task("classification", "contextual", "tagging", "masked")
        model, tokenizer = its.model(), its.tokenizer
        if isinstance(model, OnText):
            learned = model.summary is not None and model.summary.question is not None
            return cls(model.reading, tokenizer, model.summary if learned else None)
        if isinstance(model, MaskedLM | OnTokens):
            return cls(model.bert if isinstance(model, MaskedLM) else model.reading, tokenizer)
        if isinstance(model, PoolingClassifier):
            raise SettingError(f"{its.path}, whose words have no layers", "a run of ELMo or BERT", where="embed")
        return cls(cast(HasStates, model), tokenizer)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], layer: Layer = "mix") -> list[Embedded]:
        """The words of each text, those between spaces, and their vectors; of several pieces, their mean.

        `layer`: its number, 0 being words by themselves; "mix": the layers as a tagger has learned to mix them, else
        their mean; "all" of them.
        """
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for encoding, states in zip(self.tokenizer.encode_batch(some), self._states(some), strict=True):
                found.append(_by_word(encoding, self._chosen(states[:, 1:-1], layer)))  # without the frame
        return found

    @torch.no_grad()
    def pool(self, texts: Sequence[str], by: Pool, layer: Layer = "mix") -> list[Embedded]:
        """One vector for each text, as if it were a word.

        It is the state of [CLS], the mean of all states, or their average by the question that a classifier learned.
        """
        if by == "attention" and self.question is None:
            came, why = "a run without a learned question", "Train a classifier with model.pooling=attention."
            raise SettingError(came, "one that has learned where to look", where="embed", advice=why)
        if layer == "all":
            raise SettingError("all layers, pooled", "a number, or mix", where="embed")
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for text, states in zip(some, self._states(some), strict=True):
                chosen = self._chosen(states, layer).unsqueeze(0)
                summary = self.question if by == "attention" and self.question else Summary(chosen.size(-1), by)
                found.append(Embedded((text,), summary.cpu()(chosen, torch.tensor([chosen.size(1)]))))
        return found

    def _states(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """(L, T, D) of each text, with the signs that frame it."""
        special, device = self.tokenizer.special, next(cast(nn.Module, self.model).parameters()).device
        if isinstance(self.model, Bert | Reading):
            longest = self.model.longest if isinstance(self.model, Bert) else self.model.bert.longest
            rows = rows_of(self.tokenizer.ids_batch(texts), [None] * len(texts), special, longest, "embed")
            every = self.model.states(*rows.to(device))
            return (one[:, :length] for one, length in zip(every, rows.lengths.tolist(), strict=True))
        words = opened(self.tokenizer, texts)
        framed = [torch.tensor([special.need("cls"), *one.ids, special.need("sep")]) for one in words]
        lengths = torch.tensor([len(row) for row in framed])
        inputs = pad_sequence(framed, batch_first=True, padding_value=special.need("pad"))
        inputs, outside = compacted(inputs, len(self.tokenizer))
        spelling = {number: word for one in words for number, word in one.spellings.items()}
        spellings = spelled_words([spelling[number] for number in outside.tolist()])
        states = self.model.states(inputs.to(device), lengths.to(device), spellings.to(device))
        return (one[:, :length] for one, length in zip(states, lengths.tolist(), strict=True))

    def _chosen(self, states: Tensor, layer: Layer) -> Tensor:
        """states (L, T, D): (T, D), or (T, L, D) for all."""
        if layer == "all":
            return states.transpose(0, 1).cpu()
        if layer == "mix":
            mix = getattr(self.model, "mix", None)
            return (states.mean(0) if mix is None else cast(Tensor, mix(states.unsqueeze(0))[0])).cpu()
        if not 0 <= layer < len(states):
            raise SettingError(f"layer {layer}", f"0 to {len(states) - 1}, mix or all", where="embed")
        return states[layer].cpu()


def joined(embedded: Sequence[Embedded]) -> Embedded:
    """The words of several texts as if they were one's."""
    return Embedded(tuple(word for one in embedded for word in one.words), torch.cat([one.vectors for one in embedded]))


def save_embedded(embedded: Iterable[Embedded], path: Path) -> None:
    """Write `words`, `texts` (N,) (the number of each word's text) and `vectors` of several texts, end to end.

    To .npz, or to .safetensors with the words as JSON in its metadata; neither is pickled.
    """
    every = list(embedded)
    words = list(joined(every).words)
    texts = torch.tensor([number for number, one in enumerate(every) for _ in one.words], dtype=torch.int64)
    vectors = joined(every).vectors.contiguous()
    try:
        if path.suffix == ".npz":
            with open(path, "wb") as stream:
                np.savez(stream, words=np.array(words, dtype=np.str_), texts=texts.numpy(), vectors=vectors.numpy())
        elif path.suffix == ".safetensors":
            said = {"words": json.dumps(words, ensure_ascii=False)}
            write_whole(path, save({"texts": texts, "vectors": vectors}, said))
        else:
            raise SettingError(f"{path}", "a file ending in .npz or .safetensors", where="embed --out")
    except OSError as error:
        raise SettingError(f"{path} ({error.strerror})", "a file to write", where="embed --out") from error


def _by_word(encoding: Encoding, vectors: Tensor) -> Embedded:
    """Vectors of pieces (T, ...) as those of words: the mean of each word's; words without a piece are left out."""
    at = torch.tensor(encoding.words, dtype=torch.int64)
    spans = spaced(encoding.text)
    numbers = [number for number in at.unique().tolist() if number < len(spans)]
    means = [vectors[at == number].mean(0) for number in numbers]
    return Embedded(
        tuple(encoding.text[slice(*spans[number])] for number in numbers),
        torch.stack(means) if means else vectors[:0],
    )
