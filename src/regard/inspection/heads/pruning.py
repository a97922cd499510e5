"""Head pruning: remove the least important heads of a run, and save the smaller model as a new run.

prune(Path("runs/transformer"), Path("runs/half"), keep=0.5)
regard.load("runs/half")                                           # and `regard translate runs/half`, `look`, `train`

Models of transformers are not pruned: `intervene(..., weights="zero")` silences their heads, which has the same output.
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
from regard.inspection.heads.importance import importance
from regard.inspection.heads.run_evaluation import EVAL_GENERATIONS, RunEvaluation
from regard.models import find_multi_heads, prune_heads, query_group_size
from regard.runs import FILE as WEIGHTS, RECIPE, TARGET_TOKENIZER, TOKENIZER, Run, save_weights, weights_of
from regard.training import Recipe, load_recipe, write_recipe
from regard.training.tasks import TokenizerFile

Heads = dict[str, list[int]]
Criterion = Literal["importance", "ablation"]


@dataclass(frozen=True, repr=False)
class Pruned:
    """The result of pruning: the score of each head, the removed heads, and the model's size and metrics before and
    after."""

    scores: dict[str, list[float]]
    cut: Heads
    parameters: tuple[int, int]
    before: dict[str, float]
    after: dict[str, float]

    def __repr__(self) -> str:
        cut = sum(map(len, self.cut.values()))
        loss = f", loss {self.before['loss']:.4g} -> {self.after['loss']:.4g}" if "loss" in self.before else ""
        return f"Pruned({cut} of {self.heads} heads, {self.parameters[0]:,} -> {self.parameters[1]:,} parameters{loss})"

    @property
    def heads(self) -> int:
        """The number of heads before pruning."""
        return sum(map(len, self.scores.values()))


def prune(
    run: str | os.PathLike[str],
    out: Path,
    keep: float,
    criterion: Criterion = "importance",
    file: Path | None = None,
    max_batches: int | None = None,
    generations: int = EVAL_GENERATIONS,
    on_progress: Callable[[int], None] = lambda more: None,
) -> Pruned:
    """Remove the least important heads of a run, so that the share `keep` of them stays, and write it as another run.

    `criterion`: gradients (importance), or the rise of the loss without each head (ablation). Scores and metrics are
    those of the run's validation examples, or of a `file`, `max_batches` of them. `generations`: translations that BLEU
    is computed on. `on_progress` is called after each ablated head.
    """
    _expect_new(out)
    run = Run.open(run)
    whole = RunEvaluation.of(run, file, max_batches)
    places = list(find_multi_heads(whole.model))
    if not places:
        raise SettingError("The model has no multi-head attention to prune", where=str(run.path))
    if criterion == "importance":
        scores = {place: one.tolist() for place, one in importance(whole.model, whole.losses(), places).items()}
    else:
        scores = ablate(whole.model, whole.loss, places, on_progress=on_progress).changes
    cut = lowest_heads(whole.model, scores, keep)
    before, count = whole.metrics(generations), _parameter_count(whole.model)
    smaller = save_pruned(run, out, cut)
    after = replace(whole, model=smaller).metrics(generations)
    return Pruned(scores, cut, (count, _parameter_count(smaller)), before, after)


def lowest_heads(model: nn.Module, scores: Mapping[str, Sequence[float] | Tensor], keep: float) -> Heads:
    """The heads with the lowest scores, by place, so that the share `keep` of all scored heads stays.

    At least one head stays at each place. Heads that share a key (grouped-query attention) go together, by the sum of
    their scores.
    """
    if not 0 < keep <= 1:
        raise SettingError(f"keep={keep}", "a share above 0, at most 1", where="prune")
    attentions = {place: one for place, one in find_multi_heads(model).items() if place in scores}
    if not attentions:
        raise SettingError(f"A {type(model).__name__} has no multi-head attention to prune", where="prune")
    total = sum(len(scores[place]) for place in attentions)
    units = []
    for place, attention in attentions.items():
        size, values = query_group_size(attention), [float(one) for one in scores[place]]
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
    """Remove these heads from the model of a run, and write it to a new folder as a run of its own."""
    _expect_new(out)
    source = Run.open(run)
    recipe = load_recipe(source)
    model = prune_heads(deepcopy(source.model()), heads)
    out.mkdir(parents=True, exist_ok=True)
    for name in (TOKENIZER, TARGET_TOKENIZER):
        if (source.path / name).exists():
            copyfile(source.path / name, out / name)
    save_weights(weights_of(model), out / WEIGHTS)
    write_recipe(_standalone_recipe(recipe, heads, out), out / RECIPE)  # last: where it is, the others are
    return model


def _standalone_recipe(recipe: Recipe, heads: Mapping[str, Sequence[int]], out: Path) -> Recipe:
    """The recipe of the smaller run, which needs no other run: it starts from its own weights, which include those that
    were copied from a BERT."""
    changes: dict[str, Any] = {"pruned": _merge_pruned(recipe.pruned, heads)}
    section: Any = recipe.model  # type: ignore[attr-defined]
    if getattr(section, "pretrained", None) is not None:
        tokenizer: Any = recipe.tokenizer  # type: ignore[attr-defined]
        roles = tokenizer.roles if isinstance(tokenizer, TokenizerFile) else {}
        changes["tokenizer"] = TokenizerFile(path=(out / TOKENIZER).resolve(), roles=roles)
        changes["model"] = section.model_copy(update={"pretrained": None})
    changes["start"] = recipe.start.model_copy(update={"weights": out.resolve()})
    return recipe.model_copy(update=changes)


def _merge_pruned(before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]]) -> Heads:
    """Heads that were pruned before and those pruned now, whose numbers count only the remaining heads."""
    found = {place: sorted(heads) for place, heads in before.items()}
    for place, heads in now.items():
        gone = set(found.get(place, ()))
        left = [head for head in range(max(heads, default=-1) + 1 + len(gone)) if head not in gone]
        found[place] = sorted(gone | {left[head] for head in heads})
    return {place: heads for place, heads in found.items() if heads}


def _expect_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"The folder {out} exists and is not empty", where="--out", advice="Name another folder.")


def _parameter_count(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())
