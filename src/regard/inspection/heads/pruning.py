"""Prune a run for good: choose the heads that matter least, cut them out, and save the smaller model as a run.

prune(Path("runs/transformer"), Path("runs/half"), keep=0.5)
regard.load("runs/half")                                           # and `regard translate runs/half`, `look`, `train`

A model of transformers is not cut: `intervene(..., weights="zero")` silences its heads, which says the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from typing import Any, Literal

from torch import Tensor, nn

from regard.errors import RunError, SettingError
from regard.inspection.heads.ablation import ablate
from regard.inspection.heads.evaluation import GRADED, Examined
from regard.inspection.heads.importance import importance
from regard.models import group_of, multi_heads, without
from regard.runs import FILE as WEIGHTS, RECIPE, TARGET_TOKENIZER, TOKENIZER, Run, save_weights, weights_of
from regard.training import Recipe, recorded, write_recipe
from regard.training.tasks import File

Heads = dict[str, list[int]]
By = Literal["importance", "ablation"]


@dataclass(frozen=True)
class Pruned:
    """What pruning has found and done: a score for each head, which were cut, and the model before and after."""

    scores: dict[str, list[float]]
    cut: Heads
    parameters: tuple[int, int]
    before: dict[str, float]
    after: dict[str, float]

    @property
    def heads(self) -> int:
        """How many there were."""
        return sum(map(len, self.scores.values()))


def prune(
    run: str | os.PathLike[str],
    out: Path,
    keep: float,
    by: By = "importance",
    file: Path | None = None,
    most: int | None = None,
    graded: int = GRADED,
    tell: Callable[[int], None] = lambda more: None,
) -> Pruned:
    """Cut the heads of a run that matter least, so that the share `keep` of them stays, and write it as another run.

    `by`: gradients, or the rise of the loss without each head. They and the measures are those of the run's validation
    examples, or of a `file`, of which `most` batches are taken. `graded`: translations that BLEU is measured on.
    `tell` is told of each head that was switched off.
    """
    _expect_new(out)
    run = Run.open(run)
    whole = Examined.of(run, file, most)
    places = list(multi_heads(whole.model))
    if not places:
        raise SettingError(f"{run.path}, a model without several heads", "one with heads to cut", where="prune")
    if by == "importance":
        scores = {place: one.tolist() for place, one in importance(whole.model, whole.losses(), places).items()}
    else:
        scores = ablate(whole.model, whole.loss, places, tell=tell).changes
    cut = lowest(whole.model, scores, keep)
    before, count = whole.metrics(graded), _size(whole.model)
    smaller = save_pruned(run, out, cut)
    after = replace(whole, model=smaller).metrics(graded)
    return Pruned(scores, cut, (count, _size(smaller)), before, after)


def lowest(model: nn.Module, scores: Mapping[str, Sequence[float] | Tensor], keep: float) -> Heads:
    """The heads that score lowest, by place, so that the share `keep` of all that were scored stays.

    At each place one stays at least. Heads that share a key go together, by the sum of their scores.
    """
    if not 0 < keep <= 1:
        raise SettingError(f"keep={keep}", "a share above 0, at most 1", where="prune")
    attentions = {place: one for place, one in multi_heads(model).items() if place in scores}
    if not attentions:
        raise SettingError(f"a {type(model).__name__} without several heads", "one with heads to cut", where="prune")
    total = sum(len(scores[place]) for place in attentions)
    units = []
    for place, attention in attentions.items():
        size, values = group_of(attention), [float(one) for one in scores[place]]
        groups = [list(range(first, first + size)) for first in range(0, len(values), size)]
        units += [(sum(values[head] for head in group), place, group) for group in groups]
    left = {place: len(scores[place]) for place in attentions}
    room, cut = total - max(1, round(keep * total)), Heads()
    for _, place, group in sorted(units, key=lambda unit: unit[0]):
        if len(group) <= room and left[place] > len(group):
            cut.setdefault(place, []).extend(group)
            left[place] -= len(group)
            room -= len(group)
    return {place: sorted(cut[place]) for place in attentions if place in cut}


def save_pruned(run: str | os.PathLike[str], out: Path, heads: Mapping[str, Sequence[int]]) -> nn.Module:
    """The model of a run without these heads, which is also written to a new folder, as a run of its own."""
    _expect_new(out)
    source = Run.open(run)
    recipe = recorded(source)
    model = without(deepcopy(source.model()), heads)
    out.mkdir(parents=True, exist_ok=True)
    for name in (TOKENIZER, TARGET_TOKENIZER):
        if (source.path / name).exists():
            copyfile(source.path / name, out / name)
    save_weights(weights_of(model), out / WEIGHTS)
    write_recipe(_of_its_own(recipe, heads, out), out / RECIPE)  # last: where it is, the others are
    return model


def _of_its_own(recipe: Recipe, heads: Mapping[str, Sequence[int]], out: Path) -> Recipe:
    """The recipe of the smaller run, which needs no other run: it begins with its own weights, and what was taken along
    from a BERT is in them."""
    changes: dict[str, Any] = {"pruned": _together(recipe.pruned, heads)}
    section: Any = recipe.model  # type: ignore[attr-defined]
    if getattr(section, "start", None) is not None:
        tokenizer: Any = recipe.tokenizer  # type: ignore[attr-defined]
        roles = tokenizer.roles if isinstance(tokenizer, File) else {}
        changes["tokenizer"] = File(path=(out / TOKENIZER).resolve(), roles=roles)
        changes["model"] = section.model_copy(update={"start": None})
    changes["start"] = recipe.start.model_copy(update={"weights": out.resolve()})
    return recipe.model_copy(update=changes)


def _together(before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]]) -> Heads:
    """Heads that were cut before and those cut now, whose numbers are those of the heads that were left."""
    found = {place: sorted(heads) for place, heads in before.items()}
    for place, heads in now.items():
        gone = set(found.get(place, ()))
        left = [head for head in range(max(heads, default=-1) + 1 + len(gone)) if head not in gone]
        found[place] = sorted(gone | {left[head] for head in heads})
    return {place: heads for place, heads in found.items() if heads}


def _expect_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out}, which exists", "a new folder", where="--out", advice="Name another folder.")


def _size(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())
