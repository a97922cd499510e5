"""START HERE: is this attention an explanation? One call runs every faithfulness test on a model's attention.

report = audit(model, examples)
report.verdict("pooling").reason     # 'This map does not explain the decision: ...'
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

from regard.adapters import Case, Example, ModelAdapter, adapter as make_adapter
from regard.errors import SettingError
from regard.faithfulness.decision_scores import AuditSettings, run_tests
from regard.faithfulness.examples import built_in_examples, read_examples
from regard.faithfulness.journal import Journal, remove_journals
from regard.faithfulness.report import Report, expect_writable, summarise
from regard.hub import run_of
from regard.inspection.atlas import BUILT_IN, expect_built_in

if TYPE_CHECKING:
    from regard.training import World

OnProgress = Callable[[int], None]
"""Called with the number of decisions that were just done."""

BUILT_IN_EXAMPLES = 200  # of the built-in corpus, which has no end


def audit(
    model: nn.Module | ModelAdapter | str | os.PathLike[str],
    examples: Iterable[Example] | str | os.PathLike[str],
    *,
    max_examples: int | None = None,
    tokenizer: Any = None,
    settings: AuditSettings | None = None,
    out: Sequence[str | os.PathLike[str]] = (),
    journal: str | os.PathLike[str] | None = None,
    world: World | None = None,
    on_progress: OnProgress = lambda done: None,
) -> Report:
    """Test whether the attention of a model explains its decisions on some examples.

    examples       texts; Labelled ones, whose labels give the right class and whose evidence, if known, the reason;
                   Translations; the name of a file of these; or "built-in": the built-in corpus, with the task of the
                   model's run
    max_examples   use the first ones only
    out            files to save the report to (.html, .json)
    journal        finished parts are stored beside this file, by default the first of `out`, so that an interrupted
                   audit resumes; they are deleted when the report is saved
    world          processes that share the work; the result does not depend on their number

    Meanwhile the model is in eval() and attends through "regard"; afterwards it is as it was.
    """
    paths = [expect_writable(Path(path)) for path in out]
    journal = journal if journal is not None or not paths else paths[0]
    settings = settings or AuditSettings()
    adapter = make_adapter(model, tokenizer) if isinstance(model, nn.Module | str | os.PathLike) else model
    with adapter.borrow(evaluate=True, through_regard=True):
        cases = _make_cases(adapter, _load_examples(adapter, examples, max_examples), settings.seed)
        results = _run_parts(adapter, cases, settings, journal, world, on_progress)
    facts = {"model": adapter.name, "decision": adapter.decision, "settings": settings.to_dict()}
    report = summarise(facts, results, settings)
    if world is None or world.is_main:
        for path in dict.fromkeys(paths):
            report.save(path)
        if paths and journal is not None:
            remove_journals(Path(journal))
    return report


def _run_parts(
    adapter: ModelAdapter,
    cases: Sequence[Case],
    settings: AuditSettings,
    journal: str | os.PathLike[str] | None,
    world: World | None,
    on_progress: OnProgress,
) -> list[dict[str, Any]]:
    """The results of all cases, in order; parts that are in the journal are not run again."""
    size = settings.batch_size
    parts = [cases[first : first + size] for first in range(0, len(cases), size)]
    rank, ranks = (0, 1) if world is None else (world.rank, world.ranks)
    log = None if journal is None else Journal(Path(journal), _fingerprint(adapter, cases, settings), rank)
    done: dict[int, list[dict[str, Any]]] = {} if log is None else log.done
    on_progress(sum(len(part) for part in done.values()))
    try:
        for number, part in enumerate(parts):
            if number % ranks != rank or number in done:
                continue
            done[number] = [one.to_dict() for one in run_tests(adapter, part, settings, number)]
            if log is not None:
                log.append(number, done[number])
            on_progress(len(part))
    finally:
        if log is not None:
            log.close()
    own: list[Any] = [[number, done[number]] for number in sorted(done)]
    gathered: dict[int, list[dict[str, Any]]] = {}
    for some in [own] if world is None else world.gather(own):
        gathered.update((int(number), results) for number, results in some)
    return [one for number in range(len(parts)) for one in gathered[number]]


def _load_examples(
    adapter: ModelAdapter, examples: Iterable[Example] | str | os.PathLike[str], max_examples: int | None
) -> Sequence[Example]:
    if not isinstance(examples, str | os.PathLike):
        return list(islice(examples, max_examples))
    if examples != BUILT_IN:
        return read_examples(Path(examples), adapter, max_examples)
    run = run_of(adapter.model)
    expect_built_in(run, "audit")
    return built_in_examples(run, adapter, BUILT_IN_EXAMPLES if max_examples is None else max_examples)


def _make_cases(adapter: ModelAdapter, examples: Sequence[Example], seed: int) -> list[Case]:
    """The decisions to test; random choices depend on the seed and the number of the example only."""
    cases = [
        case
        for number, example in enumerate(examples)
        for case in adapter.make_cases(example, number, Random(f"{seed} {number}"))
        if sum(case.row.removable) > 1
    ]
    if not cases:
        raise SettingError(
            f"None of the {len(examples)} examples can be audited",
            where="audit",
            advice="An audit needs texts of at least two words for which the model makes a prediction.",
        )
    return cases


def _fingerprint(adapter: ModelAdapter, cases: Sequence[Case], settings: AuditSettings) -> dict[str, Any]:
    """Identifies an audit, so that parts of another one are not mistaken for its own."""
    weights = blake2b(digest_size=16)
    for name, tensor in sorted(adapter.model.state_dict().items()):
        weights.update(name.encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    rows = blake2b(repr([(case.number, case.row) for case in cases]).encode(), digest_size=16)
    return {"model": weights.hexdigest(), "cases": rows.hexdigest(), "settings": settings.to_dict()}
