"""START HERE: the head atlas of a model, every head with its labels, their evidence, and examples.

found = atlas("runs/bert", texts);  found.save("atlas.json");  found.heads[0].names
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.adapters import ModelAdapter, adapter
from regard.bounded_files import DATA_LIMIT, read_json
from regard.errors import RecordError, SettingError
from regard.hub import run_of
from regard.inspection.atlas.accumulate import STEPS, PatternSums, PatternTargets, accumulate
from regard.inspection.atlas.atlas_export import save_atlas
from regard.inspection.atlas.head_patterns import NUMBERS
from regard.inspection.atlas.label_criteria import (
    MIN_TEXTS,
    VERSION,
    AtlasData,
    Head,
    PatternExample,
    earned_names,
    measure_patterns,
)
from regard.inspection.atlas.passages import (
    BUILT_IN,
    Passage,
    PassageLike,
    expect_built_in,
    read_passages,
    to_passages,
    with_tags,
)
from regard.inspection.atlas.run_model import PlaceMaps, run_passage
from regard.inspection.atlas.token_features import map_features
from regard.inspection.atlas.word_statistics import WordStatistics, count_words, words_of

if TYPE_CHECKING:
    from regard.training import World


PROBES = 24
LENGTHS = (6, 16)  # words of one half; they differ, so that no fixed distance passes for induction
PROBE_VOCABULARY = 2000  # the most frequent words, to draw from


def induction_probes(statistics: WordStatistics, pairs: bool, seed: int = 0, count: int = PROBES) -> list[Passage]:
    """Random words, repeated once, that reveal induction heads; with `pairs`, for models that need a second text, that
    is the same."""
    words = [word for word, _ in statistics.counts.most_common(PROBE_VOCABULARY) if words_of(word) == [word]]
    rng, found = Random(f"probes/{seed}"), []
    for _ in range(count if len(words) >= LENGTHS[1] else 0):
        half = rng.sample(words, rng.randint(*LENGTHS))
        text = " ".join(half + half)
        found.append(Passage(text, text if pairs else None, probe=True))
    return found


MAX_WORDS = 100  # of a text; longer ones are truncated
BUILT_IN_TEXTS = 500  # by default, of the built-in corpus, which is endless


class Atlas(AtlasData):
    """The labels of every head of a model, measured over some texts; it can be saved and loaded."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file atomically, in the format of its suffix: .json, .html, .svg or .png."""
        return save_atlas(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Atlas:
        """Read the JSON format."""
        try:
            data = read_json(path, RecordError, DATA_LIMIT)
            version = data.get("version")
            if version == VERSION:
                return cls(data["model"], data["texts"], tuple(Head.from_dict(head) for head in data["heads"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"The file cannot be read as an atlas ({error})", where=str(path)) from None
        advice = "Make it anew with `regard atlas`."
        raise RecordError(f"an atlas of version {version}", f"version {VERSION}", where=str(path), advice=advice)


def atlas(
    model: nn.Module | str | os.PathLike[str] | ModelAdapter,
    texts: Iterable[PassageLike] | str | os.PathLike[str],
    *,
    max_texts: int | None = None,
    tokenizer: Any = None,
    statistics: WordStatistics | None = None,
    max_words: int = MAX_WORDS,
    seed: int = 0,
    world: World | None = None,
    on_progress: Callable[[int], None] = lambda more: None,
) -> Atlas:
    """Run a model once over texts, and label its heads.

    texts        strings, pairs of them, translations with gold links, or passages with their nouns; or as
                 `load_passages` takes them, a file or "built-in"
    max_texts    only the first of them
    statistics   of words, by default counted in these texts
    max_words    longer texts are truncated
    world        the texts are shared among its ranks, and all get the same atlas, to the last digit
    on_progress  called with the number of texts that were added
    """
    found = adapter(model, tokenizer) if isinstance(model, nn.Module | str | os.PathLike) else model
    some = load_passages(found, texts, max_texts) if isinstance(texts, str | os.PathLike) else islice(texts, max_texts)
    given = to_passages(some, max_words)
    if len(given) < MIN_TEXTS:
        raise SettingError(f"{len(given)} texts", f"at least {MIN_TEXTS}, for confidence intervals", where="atlas")
    known = count_words(given) if statistics is None else statistics
    given += induction_probes(known, pairs=found.kind == "translates", seed=seed)
    with found.borrow(evaluate=True):
        sums = accumulate_passages(found, given, known, seed, world, on_progress)
        sums = sums if world is None else _sum_over_ranks(sums, world)
    heads = tuple(head for place, one in sums.items() for head in _heads(place, one))
    return Atlas(found.name, sum(not one.probe for one in given), heads)


def load_passages(
    model: ModelAdapter, texts: str | os.PathLike[str], max_texts: int | None = None, tags: Path | None = None
) -> list[Passage]:
    """The first texts of a file (see `read_passages`), with the tags of their words; or "built-in": those of the
    built-in corpus, in the format of the run's own task."""
    if texts == BUILT_IN:
        if tags is not None:
            problem = "The built-in corpus has tags of its own, so it takes no file of them"
            raise SettingError(problem, where="atlas")
        run = run_of(model.model)
        expect_built_in(run, "atlas")
        from regard.inspection.atlas.built_in_examples import built_in_passages  # imports the grammar and training

        return built_in_passages(run, model.kind, BUILT_IN_TEXTS if max_texts is None else max_texts)
    given = read_passages(Path(texts), max_texts)
    return given if tags is None else with_tags(given, tags)


def accumulate_passages(
    model: ModelAdapter,
    passages: Sequence[Passage],
    statistics: WordStatistics,
    seed: int = 0,
    world: World | None = None,
    on_progress: Callable[[int], None] = lambda more: None,
) -> dict[str, PatternSums]:
    """The sums of this rank's passages, by place."""
    found: dict[str, PatternSums] = {}
    rank, ranks = (0, 1) if world is None else (world.rank, world.ranks)
    for number in range(rank, len(passages), ranks):
        passage = passages[number]
        known: list[tuple[PlaceMaps, PatternTargets]] = []
        for one in run_passage(model, passage):
            targets = _shared_targets(known, one, passage, statistics)
            sums = found.setdefault(one.place, PatternSums.zeros(one.weights.size(0), one.layer, one.is_self))
            accumulate(sums, targets, one.weights, number, seed)
        on_progress(1)
    return found


def _shared_targets(
    known: list[tuple[PlaceMaps, PatternTargets]], one: PlaceMaps, passage: Passage, statistics: WordStatistics
) -> PatternTargets:
    """The targets at a place; places of one text with the same tokens and the same mask share them."""
    for other, targets in known:
        if other.queries is one.queries and other.keys is one.keys and other.visible.equal(one.visible):
            return targets
    features = map_features((one.queries, one.keys), one.is_self, one.visible, passage, statistics)
    known.append((one, PatternTargets(features)))
    return known[-1][1]


def _sum_over_ranks(sums: dict[str, PatternSums], world: World) -> dict[str, PatternSums]:
    """The sums of all ranks, in the order of the model's places."""
    if not world.is_distributed:
        return sums
    found: dict[str, PatternSums] = {}
    for gathered in world.gather({place: one.to_dict() for place, one in sums.items()}):
        for place, one in gathered.items():
            if place in found:
                found[place].add(PatternSums.from_dict(one))
            else:
                found[place] = PatternSums.from_dict(one)
    return found


def _heads(place: str, sums: PatternSums) -> Iterable[Head]:
    for number, measures in enumerate(measure_patterns(sums)):
        names = tuple(earned_names(measures))
        examples = {
            name: tuple(
                PatternExample(-steps / STEPS, query, key, text)
                for steps, *_, query, key, text in sums.examples.get((number, NUMBERS[name]), ())
            )
            for name in names
        }
        yield Head(place, sums.layer, number, measures, names, examples)
