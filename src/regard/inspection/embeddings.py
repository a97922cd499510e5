"""The vectors of words in their context, from any model that has `states`: ELMo, BERT, and what is built on them.

>>> embedder = Embedder.of("runs/elmo")
>>> embedder.embed(["he took a train .", "he likes to train ."], layer=2)[0].vectors        # (5, D)
>>> Embedder.of("runs/bert").pool(["he took a train ."], "mean")[0].vectors                  # (1, D): of the whole text
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.adapters import EncoderAdapter, run_adapter
from regard.errors import SettingError
from regard.files import write_whole
from regard.models import Summary
from regard.text import Encoding, spaced

ROWS = 32  # texts read at once
Layer = int | Literal["mix", "all"]
Pool = Literal["cls", "mean", "attention"]


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
    """A trained encoder; its adapter reads text and gives the states of every layer."""

    adapter: EncoderAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Embedder:
        """The model of a run folder."""
        found = run_adapter(run, EncoderAdapter, "contextual", "tagging", "masked", "classification")
        if found.reader is None:
            raise SettingError(f"{run}, whose words have no layers", "a run of ELMo or BERT", where="embed")
        return cls(found)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], layer: Layer = "mix") -> list[Embedded]:
        """The words of each text, those between spaces, and their vectors; of several pieces, their mean.

        `layer`: its number, 0 being words by themselves; "mix": the layers as a tagger has learned to mix them, else
        their mean; "all" of them.
        """
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for encoding, states in zip(
                self.adapter.tokenizer.encode_batch(some), self.adapter.states(some), strict=True
            ):
                found.append(_by_word(encoding, self._chosen(states[:, 1:-1], layer)))  # without the frame
        return found

    @torch.no_grad()
    def pool(self, texts: Sequence[str], by: Pool, layer: Layer = "mix") -> list[Embedded]:
        """One vector for each text, as if it were a word.

        It is the state of [CLS], the mean of all states, or their average by the question that a classifier learned.
        """
        learned = self.adapter.learned_pooling if by == "attention" else None
        pooling = None if learned is None else deepcopy(learned).cpu()
        if by == "attention" and pooling is None:
            came, why = "a run without a learned question", "Train a classifier with model.pooling=attention."
            raise SettingError(came, "one that has learned where to look", where="embed", advice=why)
        if layer == "all":
            raise SettingError("all layers, pooled", "a number, or mix", where="embed")
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for text, states in zip(some, self.adapter.states(some), strict=True):
                chosen = self._chosen(states, layer).unsqueeze(0)
                summary = Summary(chosen.size(-1), by) if pooling is None else pooling
                found.append(Embedded((text,), summary(chosen, torch.tensor([chosen.size(1)]))))
        return found

    def _chosen(self, states: Tensor, layer: Layer) -> Tensor:
        """states (L, T, D): (T, D), or (T, L, D) for all."""
        if layer == "all":
            return states.transpose(0, 1).cpu()
        if layer == "mix":
            return self.adapter.mixed(states).cpu()
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
