"""Training that survives: a recipe in, a run out, one loop for every model. Public names load on first use.

The way through: `config` makes a `recipe` of a file; its task (`tasks`) makes a model, batches and an objective
(`objectives`) of it; `loop` trains, one `step` after the other, on a `state` whose parts are `optimisers`, `precision`,
`averaging`, `randomness` and `progress`; `evaluation` looks how good it is; `run_writer` writes each `checkpoint`;
`distributed` joins several processes; `events` is for whoever listens. `run` ties a recipe to a folder: start there.
What comes after, a trained run in use, is the room `runs`.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.training.config.recipes import (
        read_recipe as read_recipe,
        shipped as shipped,
        text_of as text_of,
        write_recipe as write_recipe,
    )
    from regard.training.distributed import Spread as Spread, World as World, join as join
    from regard.training.estimate import Estimate as Estimate
    from regard.training.evaluation import Examiner as Examiner
    from regard.training.events.log import LogFile as LogFile, read_log as read_log
    from regard.training.loop import Loop as Loop
    from regard.training.metrics import Grade as Grade, bleu as bleu, chrf as chrf, perplexity as perplexity
    from regard.training.objectives.base import (
        Loss as Loss,
        Measured as Measured,
        Objective as Objective,
        Output as Output,
    )
    from regard.training.objectives.classification import Classify as Classify
    from regard.training.objectives.elmo import PredictNeighbours as PredictNeighbours, TagWords as TagWords
    from regard.training.objectives.lm import PredictNext as PredictNext
    from regard.training.objectives.stateful_lm import ReadOn as ReadOn
    from regard.training.objectives.translation import PredictTarget as PredictTarget
    from regard.training.precision import Precision as Precision
    from regard.training.recipe import Evaluate as Evaluate, Prepared as Prepared, Recipe as Recipe
    from regard.training.run import agrees as agrees, dry_run as dry_run, recorded as recorded, train as train
    from regard.training.run_writer import Keeping as Keeping
    from regard.training.scoring import Cache as Cache, score_text as score_text
    from regard.training.tasks import TASKS as TASKS

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "config.recipes": ("read_recipe", "shipped", "text_of", "write_recipe"),
        "distributed": ("Spread", "World", "join"),
        "estimate": ("Estimate",),
        "evaluation": ("Examiner",),
        "events.log": ("LogFile", "read_log"),
        "loop": ("Loop",),
        "metrics": ("Grade", "bleu", "chrf", "perplexity"),
        "objectives.base": ("Loss", "Measured", "Objective", "Output"),
        "objectives.classification": ("Classify",),
        "objectives.elmo": ("PredictNeighbours", "TagWords"),
        "objectives.lm": ("PredictNext",),
        "objectives.stateful_lm": ("ReadOn",),
        "objectives.translation": ("PredictTarget",),
        "precision": ("Precision",),
        "recipe": ("Evaluate", "Prepared", "Recipe"),
        "run": ("agrees", "dry_run", "recorded", "train"),
        "run_writer": ("Keeping",),
        "scoring": ("Cache", "score_text"),
        "tasks": ("TASKS",),
    },
)
