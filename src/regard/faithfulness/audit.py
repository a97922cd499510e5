"""START HERE: is this attention an explanation? One call puts a model's attention to every test.

report = audit(model, examples)
report.verdict("pooling").words      # 'This map does not explain the decision: ...'
report.save("audit.html")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.adapters import Case, Example, ModelAdapter, adapter
from regard.errors import SettingError
from regard.faithfulness.examples import built_in_examples, read_examples
from regard.faithfulness.journal import Journal, clear
from regard.faithfulness.report import Report, expect_writable, summarise
from regard.faithfulness.run_tests import Settings, examine
from regard.hub import run_of
from regard.inspection.atlas import BUILT_IN, expect_built_in

if TYPE_CHECKING:
    from regard.training import World

Tell = Callable[[int], None]
"""Told how many more decisions are done."""

EXAMPLES = 200  # of the built-in corpus, which has no end


def audit(
    model: nn.Module | ModelAdapter | str | os.PathLike[str],
    examples: Iterable[Example] | str | os.PathLike[str],
    *,
    most: int | None = None,
    tokenizer: Any = None,
    settings: Settings | None = None,
    out: Sequence[str | os.PathLike[str]] = (),
    journal: str | os.PathLike[str] | None = None,
    world: World | None = None,
    tell: Tell = lambda more: None,
) -> Report:
    """Test whether the attention of a model explains what it decides of some examples.

    examples: texts; Labelled ones, whose labels say what is right and whose evidence, if known, says why; Translations.
    Or the name of a file of them, or "built-in": of the built-in corpus, as the task of the model's run has them. The
    first `most` are taken. `out`: files that the report is saved to (.html, .json). `journal`: a file beside which
    parts are kept as they are done, by default the first of `out`, so that an interrupted audit goes on; they are
    taken away when the report is saved. `world`: the processes that share the work; what they find is the same,
    however many there are. The model is in eval() and attends through "regard" meanwhile, and is given back as it was.
    """
    paths = [expect_writable(Path(path)) for path in out]
    journal = journal if journal is not None or not paths else paths[0]
    settings = settings or Settings()
    asker = adapter(model, tokenizer) if isinstance(model, nn.Module | str | os.PathLike) else model
    with asker.borrowed(evaluate=True, through_regard=True):
        cases = _cases(asker, _examples(asker, examples, most), settings.seed)
        examined = _examined(asker, cases, settings, journal, world, tell)
    facts = {"model": asker.name, "decides": asker.decides, "settings": settings.told()}
    report = summarise(facts, examined, settings)
    if world is None or world.first:
        for path in dict.fromkeys(paths):
            report.save(path)
        if paths and journal is not None:
            clear(Path(journal))
    return report


def _examined(
    asker: ModelAdapter,
    cases: Sequence[Case],
    settings: Settings,
    journal: str | os.PathLike[str] | None,
    world: World | None,
    tell: Tell,
) -> list[dict[str, Any]]:
    """What every test found of every case, in their order; parts that the journal has are not done again."""
    parts = [cases[first : first + settings.chunk] for first in range(0, len(cases), settings.chunk)]
    rank, ranks = (0, 1) if world is None else (world.rank, world.ranks)
    kept = None if journal is None else Journal(Path(journal), _head(asker, cases, settings), rank)
    done: dict[int, list[dict[str, Any]]] = {} if kept is None else kept.done
    tell(sum(len(part) for part in done.values()))
    try:
        for number, part in enumerate(parts):
            if number % ranks != rank or number in done:
                continue
            done[number] = [one.told() for one in examine(asker, part, settings, number)]
            if kept is not None:
                kept.keep(number, done[number])
            tell(len(part))
    finally:
        if kept is not None:
            kept.close()
    own: list[Any] = [[number, done[number]] for number in sorted(done)]
    together: dict[int, list[dict[str, Any]]] = {}
    for some in [own] if world is None else world.gather(own):
        together.update((int(number), examined) for number, examined in some)
    return [one for number in range(len(parts)) for one in together[number]]


def _examples(
    asker: ModelAdapter, examples: Iterable[Example] | str | os.PathLike[str], most: int | None
) -> Sequence[Example]:
    if not isinstance(examples, str | os.PathLike):
        return list(islice(examples, most))
    if examples != BUILT_IN:
        return read_examples(Path(examples), asker, most)
    run = run_of(asker.model)
    expect_built_in(run, "audit")
    return built_in_examples(run, asker, EXAMPLES if most is None else most)


def _cases(asker: ModelAdapter, examples: Sequence[Example], seed: int) -> list[Case]:
    """The decisions that are asked for; chance depends on the seed and the number of the example alone."""
    found = [
        case
        for number, example in enumerate(examples)
        for case in asker.cases(example, number, Random(f"{seed} {number}"))
        if sum(case.row.free) > 1
    ]
    if not found:
        raise SettingError(
            f"{len(examples)} examples of which none can be asked about",
            "texts of two words at least, of which the model says something",
            where="audit",
        )
    return found


def _head(asker: ModelAdapter, cases: Sequence[Case], settings: Settings) -> dict[str, Any]:
    """What an audit is of: parts of another one are not taken for its own."""
    weights = blake2b(digest_size=16)
    for name, tensor in sorted(asker.model.state_dict().items()):
        weights.update(name.encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    rows = blake2b(repr([(case.number, case.row) for case in cases]).encode(), digest_size=16)
    return {"model": weights.hexdigest(), "cases": rows.hexdigest(), "settings": settings.told()}
