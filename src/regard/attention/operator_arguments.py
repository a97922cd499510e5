"""Masks, biases and normalisers as arguments of a torch.library operator, so that a graph calls a loop over blocks as
one node: all tensors, all whole numbers (which may differ from call to call), all floats, and a text that says what
these belong to, in prefix notation. Window(2, 0) & Padding(lengths) is

    All (2 Window i0 i1 None Padding t3 None 'right'

where t3 is the fourth tensor, i0 the first whole number, and (2 opens a tuple of two values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention import masks
from regard.attention.biases import DenseBias
from regard.attention.grid import Grid
from regard.attention.normalise import Entmax, Sink, Softmax, Sparsemax
from regard.attention.positions import Alibi, RelativeTable


@dataclass
class OperatorArguments:
    """The arguments of an operator: the first tensor has the device of the map, whose `shape` is (*lead, T, S)."""

    shape: list[int]
    tensors: list[Tensor]
    sizes: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)

    def all(self) -> tuple[list[Tensor], list[int], list[int], list[float]]:
        return self.tensors, self.shape, self.sizes, self.numbers

    def text(self, value: Any) -> str:
        """The text of a value; its tensors and numbers join the others."""
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return f"t{len(self.tensors) - 1}"
        if isinstance(value, int):
            self.sizes.append(value)
            return f"i{len(self.sizes) - 1}"
        if isinstance(value, float):
            self.numbers.append(value)
            return f"f{len(self.numbers) - 1}"
        if isinstance(value, str | torch.dtype):
            return f"'{value}'"
        if isinstance(value, tuple):
            return " ".join([f"({len(value)}", *[self.text(part) for part in value]])
        form = _FORMS[type(value)]
        return " ".join([form.name, *[self.text(getattr(value, name)) for name in form.fields]])

    def value(self, text: str) -> Any:
        """The value of a text."""
        words = iter(text.split())
        return self._value(next(words), words)

    def _value(self, word: str, words: Iterator[str]) -> Any:
        kind, rest = word[0], word[1:]
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if kind == "'":
            return rest[:-1]
        if kind == "(":
            return tuple([self._value(next(words), words) for _ in range(int(rest))])
        if rest.isdigit():
            pool: list[Any] = {"t": self.tensors, "i": self.sizes, "f": self.numbers}[kind]  # type: ignore[assignment]
            return pool[int(rest)]
        form = _BY_NAME[word]
        return form.build(*[self._value(next(words), words) for _ in form.fields])

    @property
    def grid(self) -> Grid:
        return Grid(tuple(self.shape[:-2]), self.shape[-2], self.shape[-1], self.tensors[0].device)


def has_form(value: object) -> bool:
    """Whether a text can name this value: it is not of a class of a user's own."""
    if isinstance(value, masks.Joined):
        return type(value) in _FORMS and all(has_form(inner) for inner in value.masks)
    return type(value) in _FORMS and (not isinstance(value, masks.Not) or has_form(value.mask))


_CONSTANTS = {"None": None, "True": True, "False": False}


class _Form(NamedTuple):
    """The name of a class in a text, the attributes that follow it, and what makes an equal value of these."""

    name: str
    fields: tuple[str, ...]
    build: Callable[..., Any]


_WINDOW = _Form("Window", ("left", "right", "offset"), masks.Window)
_ENTMAX = _Form("Entmax", ("alpha",), Entmax)
_FORMS: dict[type, _Form] = {
    masks.Everything: _Form("Everything", (), masks.Everything),
    masks.Window: _WINDOW,
    masks.Causal: _WINDOW,
    masks.Past: _WINDOW,
    masks.Padding: _Form("Padding", ("lengths", "queries", "side"), masks.Padding),
    masks.Documents: _Form("Documents", ("ids", "queries"), masks.Documents),
    masks.Dense: _Form("Dense", ("table",), masks.Dense),
    masks.Runs: _Form("Runs", ("first", "stop"), masks.Runs),
    masks.Keys: _Form("Keys", ("indices",), masks.Keys),
    masks.Blocks: _Form("Blocks", ("indices", "size"), masks.Blocks),
    masks.All: _Form("All", ("masks",), lambda inner: masks.All(*inner)),
    masks.Any: _Form("Any", ("masks",), lambda inner: masks.Any(*inner)),
    masks.Not: _Form("Not", ("mask",), masks.Not),
    DenseBias: _Form("DenseBias", ("table",), DenseBias),
    RelativeTable: _Form("Relative", ("table", "offset"), RelativeTable),
    Alibi: _Form(
        "Alibi",
        ("heads", "offset", "slopes", "dtype"),
        lambda heads, offset, slopes, dtype: Alibi(heads, offset, slopes, getattr(torch, dtype.removeprefix("torch."))),
    ),
    Softmax: _Form("Softmax", (), Softmax),
    Sink: _Form("Sink", ("logits",), Sink),
    Entmax: _ENTMAX,
    Sparsemax: _ENTMAX,
}
_BY_NAME = {form.name: form for form in _FORMS.values()}
