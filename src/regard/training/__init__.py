"""Resumable training: a recipe in, a run folder out, one loop for every model. Public names load on first use.

Start at `train_run`, which trains a recipe into a folder. `config` parses a file into a `recipe`; its task (`tasks`)
builds the model, the batches and the objective (`objectives`); `loop` calls `step` on a `state`, which consists of
`optimisers`, `precision`, `weight_average`, `random_state` and `early_stopping`; `evaluation` computes the metrics;
`run_writer` writes each `checkpoint`; `distributed` connects several processes; `events` reports to listeners.
Inference from a finished run is in the room `runs`.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.training.config.recipes import (
        read_recipe as read_recipe,
        recipe_to_toml as recipe_to_toml,
        shipped_recipes as shipped_recipes,
        write_recipe as write_recipe,
    )
    from regard.training.distributed import (
        DistributedModel as DistributedModel,
        World as World,
        init_distributed as init_distributed,
    )
    from regard.training.evaluation import Evaluator as Evaluator
    from regard.training.events.log import LogFile as LogFile, read_log as read_log
    from regard.training.loop import Loop as Loop
    from regard.training.metrics import CorpusScore as CorpusScore, bleu as bleu, chrf as chrf, perplexity as perplexity
    from regard.training.objectives.base import (
        ExampleOutput as ExampleOutput,
        Loss as Loss,
        MetricSums as MetricSums,
        Objective as Objective,
    )
    from regard.training.objectives.bilm import BiLMObjective as BiLMObjective
    from regard.training.objectives.classification import ClassificationObjective as ClassificationObjective
    from regard.training.objectives.lm import CausalLMObjective as CausalLMObjective
    from regard.training.objectives.stateful_lm import StatefulLMObjective as StatefulLMObjective
    from regard.training.objectives.translation import TranslationObjective as TranslationObjective
    from regard.training.precision import Precision as Precision
    from regard.training.recipe import (
        EvaluateSettings as EvaluateSettings,
        PreparedTask as PreparedTask,
        Recipe as Recipe,
    )
    from regard.training.resource_estimate import ResourceEstimate as ResourceEstimate
    from regard.training.run_writer import RunWriter as RunWriter
    from regard.training.tasks import TASKS as TASKS
    from regard.training.text_perplexity import NeuralCacheSettings as NeuralCacheSettings, score_text as score_text
    from regard.training.train_run import (
        check_same_recipe as check_same_recipe,
        dry_run as dry_run,
        load_recipe as load_recipe,
        train as train,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "config.recipes": ("read_recipe", "shipped_recipes", "recipe_to_toml", "write_recipe"),
        "distributed": ("DistributedModel", "World", "init_distributed"),
        "resource_estimate": ("ResourceEstimate",),
        "evaluation": ("Evaluator",),
        "events.log": ("LogFile", "read_log"),
        "loop": ("Loop",),
        "metrics": ("CorpusScore", "bleu", "chrf", "perplexity"),
        "objectives.base": ("Loss", "MetricSums", "Objective", "ExampleOutput"),
        "objectives.classification": ("ClassificationObjective",),
        "objectives.bilm": ("BiLMObjective",),
        "objectives.lm": ("CausalLMObjective",),
        "objectives.stateful_lm": ("StatefulLMObjective",),
        "objectives.translation": ("TranslationObjective",),
        "precision": ("Precision",),
        "recipe": ("EvaluateSettings", "PreparedTask", "Recipe"),
        "train_run": ("check_same_recipe", "dry_run", "load_recipe", "train"),
        "run_writer": ("RunWriter",),
        "text_perplexity": ("NeuralCacheSettings", "score_text"),
        "tasks": ("TASKS",),
    },
)
