"""The picture corpus: any number of distinct scenes with what a view says of them, reproducible, with disjoint splits.

Any example can be drawn by itself, so that processes share a corpus out by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regard.errors import SettingError, unknown
from regard.pictures.scene_rng import SPLITS, SceneRng, SceneSettings

Example_co = TypeVar("Example_co", covariant=True)


@dataclass(frozen=True)
class SceneCorpus(Generic[Example_co]):
    """A synthetic picture corpus: example `index` is a function of the view, the seed, the split and the settings.

    >>> for example in SceneCorpus(captioned, 1000): train(example.scene.draw(), example.caption.text)
    >>> SceneCorpus(labelled, 100, split="test", seed=3)[99].label

    A hash of a scene's objects decides its split, so the splits share none, whatever the view and the seed. The places
    and radii of three objects alone allow some 10^20 scenes: no corpus of a practical size has one twice.
    """

    view: Callable[[SceneRng], Example_co]
    count: int
    split: str = "train"
    seed: int = 0
    settings: SceneSettings = field(default_factory=SceneSettings)

    def __post_init__(self) -> None:
        if not callable(self.view):
            raise SettingError(f"view={self.view!r}", "a view, such as pictures.captioned", where="SceneCorpus")
        if self.split not in SPLITS:
            raise unknown(self.split, SPLITS, kind="split", where="SceneCorpus")
        if self.count < 0:
            raise SettingError(f"count={self.count}", "0 or more examples", where="SceneCorpus")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example_co:
        at = index + self.count if index < 0 else index
        if not 0 <= at < self.count:
            raise IndexError(f"index {index} of a corpus of {self.count} examples")
        return self.view(SceneRng(f"{self.view.__name__}/{self.seed}/{self.split}/{at}", self.settings, self.split))

    def __iter__(self) -> Iterator[Example_co]:
        return (self[index] for index in range(self.count))
