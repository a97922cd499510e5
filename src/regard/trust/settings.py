"""How much an audit tries, and of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import SettingError
from regard.trust.adversary import QUICK, Search
from regard.trust.rationales import SIZES


@dataclass(frozen=True)
class Settings:
    """`places`: by pattern, as capture takes them. `permutations` of the weights, `orders`: random ones that serve as
    controls, `sizes` of rationales, `samples` of the bootstrap, `level` of its intervals, `chunk`: cases examined
    together; the result does not depend on how chunks are shared out."""

    places: str | Sequence[str] = "*"
    permutations: int = 24
    search: Search = QUICK
    orders: int = 3
    sizes: Sequence[float] = SIZES
    samples: int = 1000
    level: float = 0.95
    seed: int = 0
    chunk: int = 16

    def __post_init__(self) -> None:
        for name in ("permutations", "orders", "samples", "chunk"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}={getattr(self, name)}", "at least 1", where="audit")
        if not 0 < self.level < 1:
            raise SettingError(f"level={self.level}", "a share between 0 and 1", where="audit")
        if not self.sizes or not all(0 < size <= 1 for size in self.sizes):
            raise SettingError(f"sizes={self.sizes}", "shares of the tokens, over 0 and up to 1", where="audit")

    def told(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {"places": [self.places] if isinstance(self.places, str) else list(self.places)}
