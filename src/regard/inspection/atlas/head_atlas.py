"""START HERE: the head atlas of a model, every head with its labels, what they rest on, and examples.

found = atlas("runs/bert", texts);  found.save("atlas.json");  found.heads[0].names
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.adapters import ModelAdapter, adapter
from regard.errors import RecordError, SettingError
from regard.hub import run_of
from regard.inspection.atlas.accumulate import STEPS, Plan, Sums, count
from regard.inspection.atlas.examples import (
    BUILT_IN,
    Given,
    Passage,
    expect_built_in,
    passages_of,
    read_passages,
    tagged_by,
)
from regard.inspection.atlas.export import save
from regard.inspection.atlas.head_patterns import NUMBERS
from regard.inspection.atlas.label_heads import TEXTS, VERSION, Head, Sheet, Shown, measured, names
from regard.inspection.atlas.lexicon import Lexicon, learned, words_of
from regard.inspection.atlas.run_model import Seen, seen
from regard.inspection.atlas.token_features import scene_of

if TYPE_CHECKING:
    from regard.training import World


PROBES = 24
LENGTHS = (6, 16)  # words of one half; they differ, so that a fixed distance finds nothing
KNOWN = 2000  # words to draw from, the most frequent ones


def probes(lexicon: Lexicon, pairs: bool, seed: int = 0, count: int = PROBES) -> list[Passage]:
    """Texts of random words, each text twice over; with `pairs`, for models that need a second text, it is the same."""
    words = [word for word, _ in lexicon.counts.most_common(KNOWN) if words_of(word) == [word]]
    chance, found = Random(f"probes/{seed}"), []
    for _ in range(count if len(words) >= LENGTHS[1] else 0):
        half = chance.sample(words, chance.randint(*LENGTHS))
        text = " ".join(half + half)
        found.append(Passage(text, text if pairs else None, probe=True))
    return found


WORDS = 100  # of a text; longer ones are cut
TEXTS_OF_CORPUS = 500  # of the built-in corpus, which has no end


class Atlas(Sheet):
    """What every head of a model looks at, over so many texts; it can be saved and read back."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, whole or not at all; its ending says what it is: .json, .html, .svg or .png."""
        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Atlas:
        """Read the JSON back."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            version = told.get("version")
            if version == VERSION:
                return cls(told["model"], told["texts"], tuple(Head.read(head) for head in told["heads"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"a file that cannot be read ({error})", "an atlas", where=str(path)) from None
        raise RecordError(f"an atlas of version {version}", f"version {VERSION}", where=str(path))


def atlas(
    model: nn.Module | str | os.PathLike[str] | ModelAdapter,
    texts: Iterable[Given] | str | os.PathLike[str],
    *,
    most: int | None = None,
    tokenizer: Any = None,
    lexicon: Lexicon | None = None,
    words: int = WORDS,
    seed: int = 0,
    world: World | None = None,
    tell: Callable[[int], None] = lambda more: None,
) -> Atlas:
    """Read texts with a model, once, and name its heads.

    `texts`: strings, pairs of them, translations with gold links, or passages that know their nouns; or as
    `passages_for` takes them, a file or "built-in"; the first `most` of them. Those of more than `words` words are cut.
    `lexicon`: what is known of the words, by default what these texts tell. `world`: with
    several ranks each reads a part, and all get the same atlas, to the last digit. `tell` hears how many more texts are
    read.
    """
    found = adapter(model, tokenizer) if isinstance(model, nn.Module | str | os.PathLike) else model
    some = passages_for(found, texts, most) if isinstance(texts, str | os.PathLike) else islice(texts, most)
    given = passages_of(some, words)
    if len(given) < TEXTS:
        raise SettingError(f"{len(given)} texts", f"at least {TEXTS}, so that chance can be told", where="atlas")
    known = learned(given) if lexicon is None else lexicon
    given += probes(known, pairs=found.kind == "translates", seed=seed)
    with found.borrowed(evaluate=True):
        counts = counted(found, given, known, seed, world, tell)
        sums = counts if world is None else _together(counts, world)
    heads = tuple(head for place, one in sums.items() for head in _heads(place, one))
    return Atlas(found.name, sum(not one.probe for one in given), heads)


def passages_for(
    subject: ModelAdapter, texts: str | os.PathLike[str], most: int | None = None, tags: Path | None = None
) -> list[Passage]:
    """The first texts of a file (see `read_passages`), with the tags of their words, or "built-in": of the built-in
    corpus, as the task of the model's run has it."""
    if texts == BUILT_IN:
        if tags is not None:
            raise SettingError("tags with the built-in corpus", "none: the grammar knows them", where="atlas")
        run = run_of(subject.model)
        expect_built_in(run, "atlas")
        from regard.inspection.atlas.built_in_examples import built_in  # brings the grammar and the training room

        return built_in(run, subject.kind, TEXTS_OF_CORPUS if most is None else most)
    given = read_passages(Path(texts), most)
    return given if tags is None else tagged_by(given, tags)


def counted(
    subject: ModelAdapter,
    passages: Sequence[Passage],
    lexicon: Lexicon,
    seed: int = 0,
    world: World | None = None,
    tell: Callable[[int], None] = lambda more: None,
) -> dict[str, Sums]:
    """The sums of the passages that are this rank's, by place."""
    found: dict[str, Sums] = {}
    rank, ranks = (0, 1) if world is None else (world.rank, world.ranks)
    for number in range(rank, len(passages), ranks):
        passage = passages[number]
        plans: list[tuple[Seen, Plan]] = []
        for one in seen(subject, passage):
            plan = _plan(plans, one, passage, lexicon)
            sums = found.setdefault(one.place, Sums.none(one.weights.size(0), one.layer, one.within))
            count(sums, plan, one.weights, number, seed)
        tell(1)
    return found


def _plan(known: list[tuple[Seen, Plan]], one: Seen, passage: Passage, lexicon: Lexicon) -> Plan:
    """What is asked of a place; those of one text that look at the same words in the same way share it."""
    for other, plan in known:
        if other.queries is one.queries and other.keys is one.keys and other.visible.equal(one.visible):
            return plan
    scene = scene_of((one.queries, one.keys), one.within, one.visible, passage, lexicon)
    known.append((one, Plan(scene)))
    return known[-1][1]


def _together(sums: dict[str, Sums], world: World) -> dict[str, Sums]:
    """The sums of all ranks, in the order of the model's places."""
    if not world.several:
        return sums
    found: dict[str, Sums] = {}
    for told in world.gather({place: one.told() for place, one in sums.items()}):
        for place, one in told.items():
            if place in found:
                found[place].add(Sums.read(one))
            else:
                found[place] = Sums.read(one)
    return found


def _heads(place: str, sums: Sums) -> Iterable[Head]:
    for number, measures in enumerate(measured(sums)):
        earned = tuple(names(measures))
        shown = {
            name: tuple(
                Shown(-steps / STEPS, query, key, text)
                for steps, *_, query, key, text in sums.examples.get((number, NUMBERS[name]), ())
            )
            for name in earned
        }
        yield Head(place, sums.layer, number, measures, earned, shown)
