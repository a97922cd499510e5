"""Training that survives: a recipe in, a run out, one loop for every model. Public names load on first use.

The way through the room: `reading` makes a `recipe` of a file; its task (`tasks`) makes a model, batches and an
`objective` of it; `loop` trains, one `step` after the other, on a `state` whose parts are `optimisers`, `precision`,
`averaging`, `randomness` and `progress`; `evaluation` looks how good it is; `keeping` writes each `checkpoint` and the
`weights`; `distributed` joins several processes; `telling` is for whoever listens. `run` ties a recipe to a folder:
start there. What comes after, a trained run in use, is the room `runs`.
"""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.training.config.recipes import read_recipe, write_recipe
    from regard.training.distributed import World
    from regard.training.events.log import LogFile, read_log
    from regard.training.loop import Loop
    from regard.training.metrics import Grade
    from regard.training.objectives.base import Loss, Measured, Objective, Output
    from regard.training.objectives.classification import Classify
    from regard.training.objectives.elmo import PredictNeighbours, TagWords
    from regard.training.objectives.lm import PredictNext
    from regard.training.objectives.stateful_lm import ReadOn
    from regard.training.objectives.translation import PredictTarget
    from regard.training.recipe import Prepared, Recipe
    from regard.training.run import dry_run, train
    from regard.training.run_writer import Keeping
    from regard.training.tasks import TASKS

__all__ = [
    "train",
    "dry_run",
    "read_recipe",
    "write_recipe",
    "TASKS",
    "Recipe",
    "Prepared",
    "Objective",
    "Loss",
    "Measured",
    "Output",
    "Grade",
    "Classify",
    "PredictNext",
    "ReadOn",
    "PredictTarget",
    "PredictNeighbours",
    "TagWords",
    "Loop",
    "World",
    "Keeping",
    "LogFile",
    "read_log",
]

_HOMES: dict[str, Home] = {
    name: (f"regard.training.{module}", name)
    for module, names in {
        "run": "train dry_run",
        "reading.recipes": "read_recipe write_recipe",
        "tasks": "TASKS",
        "recipe": "Recipe Prepared",
        "objective": "Objective Loss Measured Output Grade",
        "objectives": "Classify PredictNext",
        "reading_on": "ReadOn",
        "translating": "PredictTarget",
        "contexts": "PredictNeighbours TagWords",
        "loop": "Loop",
        "distributed": "World",
        "keeping": "Keeping",
        "telling.log": "LogFile read_log",
    }.items()
    for name in names.split()
}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
