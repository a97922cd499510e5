"""The axes of a record: tokens where they are known, and positions where they are not.

A place of another length than the text, such as a pooled sequence or latents, has an axis of its own. Positions are
numbers; those of several joined sequences say which sequence they are in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from regard.adapters import ModelAdapter, ModelOutput, Positions
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.sequences import PlaceCalls
from regard.inspection.record.token_axis import TokenAxis, to_token_axis

CROSS = re.compile(r"cross|encoder_attn|encdec|src_attn", re.IGNORECASE)  # in the paths of cross-attention


class Axes:
    """The axes of a record, to which places add those that they need."""

    def __init__(self, adapter: ModelAdapter, output: ModelOutput, parts: Sequence[PlaceCalls]) -> None:
        self.adapter, self.output = adapter, output
        # where some layers attend in windows, others may have their positions in the order of the windows
        self._windowed = {_tower(part.module) for part in parts if part.join == "windows"}
        self.axes = [to_token_axis(row) for row in output.axes]
        self._numbers: dict[Any, int] = {}

    def of_place(self, part: PlaceCalls) -> tuple[Literal["self", "cross"], int, int]:
        """The kind of a place, and the numbers of the axes of its queries and keys."""
        sizes = [one.size for one in part.slices]
        sequences = part.join == "windows"
        T = [size for size, _ in sizes]
        S = [size for _, size in sizes] if part.join != "steps" else [max(size for _, size in sizes)]
        if not self.output.axes:
            kind: Literal["self", "cross"] = "cross" if CROSS.search(part.module) else "self"
            return kind, self._unnamed(part, T, sequences), self._unnamed(part, S, sequences, is_key=kind == "cross")
        queries, keys, kind = self.adapter.axes_of(part.module)
        return kind, self._named(part, T, queries, sequences), self._named(part, S, keys, sequences)

    def _named(self, part: PlaceCalls, sizes: Sequence[int], number: int, sequences: bool) -> int:
        """The axis of the text, if it is as long and the place attends to it in one piece."""
        if not sequences and sum(sizes) == len(self.axes[number]):
            return number
        return self._positions(part, sizes, sequences)

    def _unnamed(self, part: PlaceCalls, sizes: Sequence[int], sequences: bool, is_key: bool = False) -> int:
        """The axis of inputs that were tensors or images."""
        known, in_order = self.output.known_axis, _tower(part.module) not in self._windowed
        asked = Positions(part.module, tuple(sizes), part.join, is_key, in_order)
        row = None if known is None else known(asked)
        if row is None:
            return self._positions(part, sizes, sequences, is_key)
        # the patches of a picture are one axis wherever they are; a text is that of its encoder or decoder
        where = ("" if row.grids else _tower(part.module), row.name, tuple(row.tokens))
        if where not in self._numbers:
            self._numbers[where] = self._add(to_token_axis(row))
        return self._numbers[where]

    def _positions(self, part: PlaceCalls, sizes: Sequence[int], sequences: bool, is_key: bool = False) -> int:
        """Positions of a part of the model; places of the same part with as many of them share an axis."""
        where = (_tower(part.module), tuple(sizes) if sequences else sum(sizes), is_key)
        if where not in self._numbers:
            self._numbers[where] = self._add(self._position_axis(part, sizes, sequences, is_key))
        return self._numbers[where]

    def _position_axis(self, part: PlaceCalls, sizes: Sequence[int], sequences: bool, is_key: bool) -> TokenAxis:
        of = f" of {_tower(part.module)}" if part.module else ""
        noun = ("key " if is_key else "") + ("position" if sum(sizes) == 1 else "positions")
        name = f"{sum(sizes)} {noun}{of}"
        if not sequences:
            return TokenAxis.from_tokens(name, [str(at) for at in range(sum(sizes))], numbered=True)
        word = self._word(part)
        labels = [f"{word} {number}, {at}" for number, size in enumerate(sizes) for at in range(size)]
        return TokenAxis.from_tokens(f"{name} in {len(sizes)} {word}s", labels, numbered=True)

    def _word(self, part: PlaceCalls) -> str:
        """What the sequences of a call are called: windows, in a model that is configured with a window size."""
        module: Any = self.adapter.model
        for name in ["", *part.module.split(".")]:
            module = getattr(module, name) if name else module
            if getattr(getattr(module, "config", module), "window_size", None):
                return "window"
        return "sequence"

    def _add(self, axis: TokenAxis) -> int:
        same = sum(one.name == axis.name for one in self.axes)
        self.axes.append(replace(axis, name=f"{axis.name} ({same + 1})") if same else axis)
        return len(self.axes) - 1

    def used_by(self, places: Sequence[PlaceRecord]) -> tuple[tuple[TokenAxis, ...], tuple[PlaceRecord, ...]]:
        """The axes without the optional ones from which no place attends, and the places with their numbers there."""
        queries = {place.queries for place in places}
        unused = {at for at, row in enumerate(self.output.axes) if row.optional and at not in queries}
        kept = [at for at in range(len(self.axes)) if at not in unused]
        moved = tuple(
            replace(place, queries=kept.index(place.queries), keys=kept.index(place.keys)) if unused else place
            for place in places
        )
        return tuple(self.axes[at] for at in kept), moved


def _tower(path: str) -> str:
    """The part of a model that a module belongs to: its path before the first number."""
    return re.split(r"\.\d", path, maxsplit=1)[0]
