"""Settings of recipes that were renamed, by their old name: an old name is refused with the new one."""

from __future__ import annotations

from collections.abc import Collection

RENAMED: dict[str, tuple[str, ...]] = {
    "average": ("weight_average",),
    "keep": ("checkpoint",),
    "checkpoint.latest": ("keep_last",),
    "train.ahead": ("prefetch",),
    "optimiser.rate": ("learning_rate",),
    "optimiser.decay": ("weight_decay",),
    "evaluate.watch": ("monitor",),
    "evaluate.graded": ("generations",),
    "objective.smoothing": ("label_smoothing",),
    "objective.rate": ("mask_rate",),
    "objective.masked": ("mask_token_rate",),
    "objective.random": ("random_token_rate",),
    "objective.longest": ("max_answer_length",),
    "batches.size": ("sequence_length",),
    "batches.limit": ("max_length",),
    "batches.rising": ("curriculum",),
    "data.other": ("text_pair",),
    "data.labels.center": ("mean",),
    "data.labels.spread": ("std",),
    "model.states": ("encoder", "encoder_dim"),
    "model.states_width": ("encoder_dim",),
    "model.score_width": ("attention_dim",),
    "model.hidden": ("feedforward_dim",),
    "model.positions": ("max_positions",),
    "model.negatives": ("num_sampled",),
    "model.feeding": ("input_feeding",),
    "model.charge": ("coverage_weight",),
    "model.gain": ("embedding_lr_scale",),
    "model.looks": ("alignment_layer",),
    "model.head": ("head_dim",),
    "model.feed": ("activation",),
    "model.feed_bias": ("feedforward_bias",),
    "model.base": ("rotary_base",),
    "model.spread": ("embedding_std",),
    "model.tune": ("finetune",),
    "model.tuned": ("finetune",),
    "model.start": ("pretrained",),
    "model.elmo": ("pretrained",),
}
"""Old names, with their section; new ones without it, several where they depend on the kind of model."""


def renamed_setting(section: str, name: str, known: Collection[str]) -> str | None:
    """What the setting `name` of a section is called now; None where it was not renamed to one of the `known` names.

    >>> renamed_setting("evaluate", "watch", ["every", "monitor"])
    'monitor'
    """
    candidates = RENAMED.get(f"{section}.{name}" if section else name, ())
    return next((one for one in candidates if one in known), None)
