"""Runs: trained models on disk (recipe, tokenizers, weights), read once, for inference without the training package.

run = Run.open("runs/translator")        # recipe.toml is parsed here, once
run.tokenizer, run.labels, run.model()   # each loaded on first use
run.provenance                           # which weights: the final ones, an average, or those of a checkpoint
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.runs import toml as toml
    from regard.runs.build import (
        TARGET_TOKENIZER as TARGET_TOKENIZER,
        TOKENIZER as TOKENIZER,
        build_model as build_model,
        load_tokenizers as load_tokenizers,
    )
    from regard.runs.checkpoint_reader import (
        AVERAGE as AVERAGE,
        FORMAT as FORMAT,
        WEIGHTS as WEIGHTS,
        Checkpoint as Checkpoint,
        checkpoint_at as checkpoint_at,
        files_in as files_in,
        steps_in as steps_in,
    )
    from regard.runs.renamed_settings import renamed_setting as renamed_setting
    from regard.runs.run import (
        RECIPE as RECIPE,
        VERSION as VERSION,
        Provenance as Provenance,
        Run as Run,
        expect_version as expect_version,
        is_run as is_run,
        open_run as open_run,
        parse_settings as parse_settings,
    )
    from regard.runs.weights import (
        FILE as FILE,
        check_shapes as check_shapes,
        copy_weights as copy_weights,
        count_layers as count_layers,
        expect_same_shape as expect_same_shape,
        load_weights as load_weights,
        meta_device as meta_device,
        read_shapes as read_shapes,
        save_weights as save_weights,
        weights_of as weights_of,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "": ("toml",),
        "build": ("TARGET_TOKENIZER", "TOKENIZER", "build_model", "load_tokenizers"),
        "checkpoint_reader": ("AVERAGE", "Checkpoint", "FORMAT", "WEIGHTS", "checkpoint_at", "files_in", "steps_in"),
        "renamed_settings": ("renamed_setting",),
        "run": ("Provenance", "RECIPE", "Run", "VERSION", "expect_version", "is_run", "open_run", "parse_settings"),
        "weights": (
            "FILE",
            "check_shapes",
            "copy_weights",
            "count_layers",
            "expect_same_shape",
            "load_weights",
            "meta_device",
            "read_shapes",
            "save_weights",
            "weights_of",
        ),
    },
)
