"""Encoders of ours asked: a classifier for the class of a text, a BERT for the word behind a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.layers import AttentionPooling
from regard.errors import SettingError
from regard.models.bert import MaskedLM
from regard.models.predictions import Logits
from regard.text.examples import Labelled, Translation
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.trust.asking.case import Case, Example, Row, tokens_of, words_at
from regard.trust.asking.deciding import Decider, at_decider, find_decider
from regard.trust.asking.padding import padded


@dataclass(frozen=True, eq=False)
class _OfTexts:
    """A model of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP], and its tokenizer."""

    model: nn.Module
    tokenizer: Tokenizer
    name: str

    def ids(self, rows: Sequence[Row]) -> Tensor:
        return self._padded(rows)[0]

    def looks_at_text(self, place: str) -> bool:
        return True

    def asks_from_text(self, place: str) -> bool:
        return not _is_question(self.model, place)

    def _padded(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
        device = next(self.model.parameters()).device
        ids, lengths = padded([row.ids for row in rows], self.tokenizer.special.need("pad"), device)
        return ids, lengths, padded([row.segments for row in rows], 0, device)[0]

    def _read(self, example: Example) -> tuple[Row, list[str], list[int]]:
        """The row of a text or of two, its tokens, and in which word of the first text each of them lies."""
        texts = _texts(example)
        cls, sep = (self.tokenizer.special.need(role) for role in ("cls", "sep"))
        ids, tokens, words, segments = [cls], [self.tokenizer.token(cls)], [-1], [0]
        for number, one in enumerate(self.tokenizer.encode_batch(texts, specials=True)):
            ids += [*one.ids, sep]
            tokens += [*one.pieces, self.tokenizer.token(sep)]
            inside = words_at(one.text, one.offsets) if number == 0 else [-1] * len(one.ids)
            words += [*inside, -1]
            segments += [number] * (len(one.ids) + 1)
        return Row(tuple(ids), self._free(ids), tuple(segments)), tokens, words

    def _free(self, ids: Sequence[int]) -> tuple[bool, ...]:
        """Which of these are words, known or not, and may be taken away."""
        special = self.tokenizer.special
        return tuple(token == special.unknown or token not in special.all for token in ids)


@dataclass(frozen=True, eq=False)
class Classifying(_OfTexts):
    """Asked for a class; `labels`: their names, where they are known."""

    labels: tuple[str, ...] = ()
    kind: str = "class"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        row, tokens, words = self._read(example)
        known = example if isinstance(example, Labelled) else None
        expected = None if known is None else self._number(known.label)
        evidence = tokens_of(words, None if known is None else known.evidence)
        return [Case(number, row, tuple(tokens), expected, evidence)]

    def say(self, rows: Sequence[Row]) -> Tensor:
        said = self.model(*self._padded(rows))
        if said.dim() != 2 or said.size(-1) < 2:
            came = f"a model that says numbers of shape {tuple(said.shape)}"
            raise SettingError(came, "one that says a class of each text", where="audit")
        return cast(Tensor, said.float().log_softmax(-1))

    def decider(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        if _is_question(self.model, place):
            return [0] * len(rows)
        return at_decider(self._decider, rows)

    def called(self, number: int) -> str:
        return self.labels[number] if self.labels else f"class {number}"

    @cached_property
    def _decider(self) -> Decider:
        return find_decider(self, self._read("a b c")[0])

    def _number(self, label: str) -> int | None:
        if not self.labels:
            return None
        if label not in self.labels:
            raise SettingError(f"the label {label!r}", f"one of {', '.join(self.labels)}", where="audit")
        return self.labels.index(label)


@dataclass(frozen=True, eq=False)
class Filling(_OfTexts):
    """Asked for the word behind a mask: the one in the text or, where there is none, some word of it, hidden."""

    kind: str = "hidden word"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        row, tokens, _ = self._read(example)
        mask, ids, expected = self.tokenizer.special.need("mask"), list(row.ids), None
        if mask not in ids:
            places = [at for at, free in enumerate(row.free) if free]
            if not places:
                return []
            at = chance.choice(places)
            expected, ids[at], tokens[at] = ids[at], mask, self.tokenizer.token(mask)
        return [Case(number, Row(tuple(ids), self._free(ids), row.segments), tuple(tokens), expected)]

    def say(self, rows: Sequence[Row]) -> Tensor:
        ids, lengths, segments = self._padded(rows)
        places = torch.tensor(self.decider("", rows), device=ids.device)
        places = places + torch.arange(len(rows), device=ids.device) * ids.size(1)
        said: Any = cast(MaskedLM, self.model)(ids, lengths, segments, places)
        return Logits(said.words).log_probs()

    def decider(self, place: str, rows: Sequence[Row]) -> list[int]:
        mask = self.tokenizer.special.need("mask")
        return [row.ids.index(mask) for row in rows]

    def called(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)


def _is_question(model: nn.Module, place: str) -> bool:
    """Whether a learned question looks at the text there, and no token of it."""
    return isinstance(model.get_submodule(place), AttentionPooling)


def _texts(example: Example) -> list[str]:
    if isinstance(example, Translation):
        raise SettingError("sentences with translations", "texts, for a model that reads", where="audit")
    if isinstance(example, str):
        return [example]
    if isinstance(example, Labelled):
        return [example.text] if example.other is None else [example.text, example.other]
    return list(example)
