"""Runs: the folder of a training, read once, with what inference needs and nothing of training.

run = Run.open("runs/translator")        # recipe.toml is parsed here, once
run.tokenizer, run.labels, run.model()   # each loaded on first use
run.provenance                           # which weights: the final ones, an average, or those of a checkpoint
"""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.runs.run import Provenance, Run

__all__ = ["Run", "Provenance"]

_HOMES: dict[str, Home] = {name: ("regard.runs.run", name) for name in __all__}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
