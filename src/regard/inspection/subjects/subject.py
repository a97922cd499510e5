"""What every kind of model offers to whoever wants to see it attend: give it text, get a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from regard.errors import SettingError
from regard.inspection.record.record import Record

Kind = Literal["translates", "continues", "fills", "reads"]
CANDIDATES = 8  # that are told for each token that was written


@dataclass(frozen=True)
class Wanted:
    """What a record is to hold: `places` by pattern, as `capture` takes them, and of which `heads` the maps are kept:
    all (None), the same ones at every place, or some for each place by its name. No heads: statistics alone.
    `gradient`: how each weight matters to ln p of what the model says is kept too. `said`: is given that number, with
    its graph."""

    places: str | Sequence[str] = "*"
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    gradient: bool = False
    said: Callable[[Tensor | None], None] | None = None

    def heads_of(self, place: str) -> Sequence[int] | None:
        if isinstance(self.heads, Mapping):
            return self.heads.get(place, ())
        return self.heads


ALL = Wanted()


class Subject(Protocol):
    """A model that text can be put to.

    translates: `other` is a translation that is given; without it the model writes one, which begins with the tokens
    `prefix`. continues: it reads, and writes on where it is told to or a prefix begins it. fills: words behind masks.
    reads: `other` is a second text.
    """

    @property
    def model(self) -> nn.Module: ...

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def description(self) -> str: ...

    def look(
        self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None, wanted: Wanted = ALL
    ) -> Record: ...


def expect_known(prefix: Sequence[int], size: int) -> list[int]:
    """The tokens that a text is to begin with, each of which must be one that the model can say."""
    wrong = next((token for token in prefix if not 0 <= token < size), None)
    if wrong is not None:
        raise SettingError(f"token {wrong} in a prefix", f"numbers from 0 to {size - 1}", where="look")
    return list(prefix)
