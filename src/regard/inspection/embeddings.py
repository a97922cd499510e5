"""Contextual word embeddings from any encoder with `states`: ELMo, BERT, and models built on them.

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
from regard.files import write_atomic
from regard.models import Pooler
from regard.text import Encoding, whitespace_words

ROWS = 32  # texts in a batch
Layer = int | Literal["mix", "all"]
Pool = Literal["cls", "mean", "attention"]


@dataclass(frozen=True, eq=False, repr=False)
class Embedded:
    """The words of a text, N of them, and their vectors: (N, D), or (N, L, D) of all layers."""

    words: tuple[str, ...]
    vectors: Tensor

    def __repr__(self) -> str:
        words = " ".join(self.words)
        return f"Embedded({words if len(words) <= 60 else f'{words[:59]}…'!r}, {tuple(self.vectors.shape)})"

    def nearest(self) -> list[tuple[int, float]]:
        """For each word the number of the most similar other one of the text, and their cosine; empty for one word."""
        if len(self.words) < 2:
            return []
        units = nn.functional.normalize(self.vectors.flatten(1).double(), dim=-1)
        best = (units @ units.T).fill_diagonal_(-torch.inf).max(-1)
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Embedder:
    """A trained encoder; its adapter tokenizes text and returns the states of every layer."""

    adapter: EncoderAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Embedder:
        """The model of a run folder."""
        found = run_adapter(run, EncoderAdapter, "contextual", "tagging", "masked", "classification")
        if found.encoder is None:
            advice = "Use a run of ELMo or BERT."
            raise SettingError("This model has no layers of hidden states", where=f"embed {run}", advice=advice)
        return cls(found)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], layer: Layer = "mix") -> list[Embedded]:
        """The whitespace-separated words of each text, and their vectors; of several tokens, their mean.

        `layer`: its number, 0 being the embeddings; "mix": the layers as a tagger has learned to mix them, else their
        mean; "all" of them.
        """
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            encodings, states = self.adapter.tokenizer.encode_batch(some), self.adapter.states(some)
            for encoding, one in zip(encodings, states, strict=True):
                found.append(_pool_words(encoding, self._select_layer(one[:, 1:-1], layer)))  # without [CLS] and [SEP]
        return found

    @torch.no_grad()
    def pool(self, texts: Sequence[str], by: Pool, layer: Layer = "mix") -> list[Embedded]:
        """One vector for each text, as if it were a word.

        It is the state of [CLS], the mean of all states, or their average by a classifier's attention pooling.
        """
        learned = self.adapter.learned_pooling if by == "attention" else None
        pooling = None if learned is None else deepcopy(learned).cpu()
        if by == "attention" and pooling is None:
            problem, advice = "This run has no attention pooling", "Train a classifier with model.pooling=attention."
            raise SettingError(problem, where="embed", advice=advice)
        if layer == "all":
            raise SettingError("Pooling takes one layer, not all", where="embed", advice="Give a number, or mix.")
        found = []
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for text, states in zip(some, self.adapter.states(some), strict=True):
                chosen = self._select_layer(states, layer).unsqueeze(0)
                pooler = Pooler(chosen.size(-1), by) if pooling is None else pooling
                found.append(Embedded((text,), pooler(chosen, torch.tensor([chosen.size(1)]))))
        return found

    def _select_layer(self, states: Tensor, layer: Layer) -> Tensor:
        """states (L, T, D): (T, D), or (T, L, D) for all."""
        if layer == "all":
            return states.transpose(0, 1).cpu()
        if layer == "mix":
            return self.adapter.mix_layers(states).cpu()
        if not 0 <= layer < len(states):
            raise SettingError(f"layer {layer}", f"0 to {len(states) - 1}, mix or all", where="embed")
        return states[layer].cpu()


def concat_embedded(embedded: Sequence[Embedded]) -> Embedded:
    """The words of several texts as one."""
    return Embedded(tuple(word for one in embedded for word in one.words), torch.cat([one.vectors for one in embedded]))


def save_embedded(embedded: Iterable[Embedded], path: Path) -> None:
    """Write `words`, `texts` (N,) (the number of each word's text) and `vectors` of several texts, end to end.

    To .npz, or to .safetensors with the words as JSON in its metadata; neither is pickled.
    """
    every = list(embedded)
    words = list(concat_embedded(every).words)
    texts = torch.tensor([number for number, one in enumerate(every) for _ in one.words], dtype=torch.int64)
    vectors = concat_embedded(every).vectors.contiguous()
    try:
        if path.suffix == ".npz":
            with open(path, "wb") as stream:
                np.savez(stream, words=np.array(words, dtype=np.str_), texts=texts.numpy(), vectors=vectors.numpy())
        elif path.suffix == ".safetensors":
            metadata = {"words": json.dumps(words, ensure_ascii=False)}
            write_atomic(path, save({"texts": texts, "vectors": vectors}, metadata))
        else:
            raise SettingError(f"{path}", "a file ending in .npz or .safetensors", where="embed --out")
    except OSError as error:
        raise SettingError(f"Could not write {path}: {error.strerror}", where="embed --out") from error


def _pool_words(encoding: Encoding, vectors: Tensor) -> Embedded:
    """Vectors of tokens (T, ...) as those of words: the mean of each word's; words without a token are left out."""
    at = torch.tensor(encoding.words, dtype=torch.int64)
    spans = whitespace_words(encoding.text)
    numbers = [number for number in at.unique().tolist() if number < len(spans)]
    means = [vectors[at == number].mean(0) for number in numbers]
    return Embedded(
        tuple(encoding.text[slice(*spans[number])] for number in numbers),
        torch.stack(means) if means else vectors[:0],
    )
