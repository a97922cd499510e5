"""The scores of single decisions: runs every faithfulness test on them, with the settings of an audit.

A score is a plain number, by map and by test. Nothing is averaged here: an audit is the list of these results, so parts
made at different times, or by different processes, are simply joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.adapters import Case, ModelAdapter
from regard.errors import SettingError
from regard.faithfulness.adversary import QUICK_SEARCH, AdversarySearch, find_adversary
from regard.faithfulness.counterfactual import (
    Counterfactual,
    decision_flips,
    erase_until_flip,
    predict_permuted,
    predict_uniform,
    rank_tokens,
)
from regard.faithfulness.maps import (
    AttentionAt,
    DecisionTrace,
    attention_maps,
    gradient_times_input_map,
    method_maps,
    trace_decisions,
)
from regard.faithfulness.token_erasure import (
    RATIONALE_SIZES,
    PredictionCache,
    ground_truth_scores,
    kendall_agreements,
    leave_one_out,
    rationale_scores,
)
from regard.inspection import CONFIDENCE_LEVEL, MAX_JSD, jsd, tvd


@dataclass(frozen=True)
class AuditSettings:
    """Settings of an audit.

    places              attention modules to audit, by glob pattern
    permutations        random permutations of the weights
    search              how adversarial attention is searched for
    random_orders       random maps that serve as controls
    rationale_sizes     shares of the removable tokens
    bootstrap_samples   of the confidence intervals, whose level is `confidence`
    batch_size          decisions tested together; the result does not depend on which process tests a batch
    """

    places: str | Sequence[str] = "*"
    permutations: int = 24
    search: AdversarySearch = QUICK_SEARCH
    random_orders: int = 3
    rationale_sizes: Sequence[float] = RATIONALE_SIZES
    bootstrap_samples: int = 1000
    confidence: float = CONFIDENCE_LEVEL
    seed: int = 0
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("permutations", "random_orders", "bootstrap_samples", "batch_size"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}={getattr(self, name)}", "at least 1", where="audit")
        if not 0 < self.confidence < 1:
            raise SettingError(f"confidence={self.confidence}", "a number between 0 and 1", where="audit")
        sizes = self.rationale_sizes
        if not sizes or not all(0 < size <= 1 for size in sizes):
            raise SettingError(f"rationale_sizes={sizes}", "shares of the tokens, above 0 and up to 1", where="audit")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"places": [self.places] if isinstance(self.places, str) else list(self.places)}


Scores = dict[str, float]
RANDOM = "random"
MAX_BATCH_ROWS = 128  # of a counterfactual, copies included


@dataclass
class ExampleResult:
    """One decision, with the numbers of every test by map: heads are "PLACE/HEAD", layers "PLACE", methods go by name.

    number         of the example
    predicted, p   the predicted class or token and its probability; `correct`: whether it is right, if known
    attributions   the maps themselves, of layers and methods
    evidence       the tokens that decide, where that is known
    """

    number: int
    tokens: tuple[str, ...]
    predicted: str
    p: float
    correct: bool | None
    maps: dict[str, Scores] = field(default_factory=dict)
    attributions: dict[str, list[float]] = field(default_factory=dict)
    evidence: list[int] | None = None

    def __repr__(self) -> str:
        return f"ExampleResult({self.number}, predicted={self.predicted!r}, p={self.p:.3f}, {len(self.maps)} maps)"

    def add(self, name: str, **scores: float) -> None:
        known = {test: value for test, value in scores.items() if not isnan(value)}
        self.maps.setdefault(name, {}).update(known)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_tests(adapter: ModelAdapter, cases: Sequence[Case], settings: AuditSettings, part: int) -> list[ExampleResult]:
    """Every test on these cases, with the random numbers of part `part` of the audit."""
    # torch uses 32 bits of a seed
    rng = torch.Generator().manual_seed(Random(f"{settings.seed} {part}").getrandbits(32))
    rows = [case.row for case in cases]
    trace = trace_decisions(adapter, rows, settings.places)
    results = [_new_result(adapter, trace, case, at) for at, case in enumerate(cases)]
    maps = attention_maps(trace) | method_maps(adapter, trace)
    second = method_maps(adapter, trace, second=True)
    predict = PredictionCache(adapter)
    references = {
        "tau_gradient": gradient_times_input_map(adapter, rows, trace.predicted, fixed=True),
        "tau_leave_one_out": leave_one_out(predict, rows, trace.log_probs.exp()),
    }
    for at, (case, result) in enumerate(zip(cases, results, strict=True)):
        size = len(case.row.ids)
        own = {name: values[at, :size] for name, values in maps.items()}
        random_maps = [torch.rand(size, generator=rng) for _ in range(settings.random_orders)]
        _add_agreement(result, own, {name: x[at, :size] for name, x in references.items()}, random_maps, case)
        _add_rationales(result, predict, case, int(trace.predicted[at]), own, random_maps, settings)
        result.attributions = {
            name: [round(x, 4) for x in values.tolist()] for name, values in own.items() if "/" not in name
        }
        for name, values in maps.items():
            other = second.get(name, values)
            result.add(name, class_sensitivity=_class_sensitivity(values[at, :size], other[at, :size]))
    for attention in trace.attention:
        _add_counterfactuals(adapter, trace, attention, settings, rng, results)
    return results


def _new_result(adapter: ModelAdapter, trace: DecisionTrace, case: Case, at: int) -> ExampleResult:
    predicted = int(trace.predicted[at])
    correct = None if case.expected is None else predicted == case.expected
    evidence = None if case.evidence is None else sorted(case.evidence)
    p = round(float(trace.p[at]), 6)
    return ExampleResult(case.number, case.tokens, adapter.label(predicted), p, correct, evidence=evidence)


def _add_agreement(
    result: ExampleResult,
    maps: Mapping[str, Tensor],
    references: Mapping[str, Tensor],
    random_maps: Sequence[Tensor],
    case: Case,
) -> None:
    """Kendall's tau with gradient and leave-one-out; the controls are random maps, and these two with each other."""
    numbered = {f"{RANDOM} {number}": scores for number, scores in enumerate(random_maps)}
    everything = {**maps, **numbered, "gradient": references["tau_gradient"]}
    taus = kendall_agreements(everything, references, case.row.removable).tolist()
    named = dict(zip(everything, taus, strict=True))
    for name in maps:
        result.add(name, tau_gradient=named[name][0], tau_leave_one_out=named[name][1])
    known = [pair for pair in map(named.__getitem__, numbered) if not isnan(pair[0]) and not isnan(pair[1])]
    if known:
        result.add(
            RANDOM,
            tau_gradient=sum(pair[0] for pair in known) / len(known),
            tau_leave_one_out=sum(pair[1] for pair in known) / len(known),
        )
    result.add("gradient", tau_leave_one_out=named["gradient"][1])


def _add_rationales(
    result: ExampleResult,
    predict: PredictionCache,
    case: Case,
    predicted: int,
    maps: Mapping[str, Tensor],
    random_maps: Sequence[Tensor],
    settings: AuditSettings,
) -> None:
    """Comprehensiveness and sufficiency; and, where the deciding tokens are known, precision and recall."""
    if not any(case.row.removable):
        return
    numbered = {f"{RANDOM} {number}": scores for number, scores in enumerate(random_maps)}
    everything = {**maps, **numbered}
    p = float(predict([case.row])[0, predicted])
    scores = rationale_scores(predict, case.row, predicted, p, everything, settings.rationale_sizes)
    evidence = case.evidence
    truth = {name: ground_truth_scores(x, case.row, evidence) for name, x in everything.items()} if evidence else {}
    for name in maps:
        result.add(name, comprehensiveness=scores[name][0], sufficiency=scores[name][1], **truth.get(name, {}))
    pairs = [scores[name] for name in numbered]
    means = {
        "comprehensiveness": sum(pair[0] for pair in pairs) / len(pairs),
        "sufficiency": sum(pair[1] for pair in pairs) / len(pairs),
    }
    if truth:
        tests = truth[next(iter(numbered))]
        means |= {test: sum(truth[name][test] for name in numbered) / len(numbered) for test in tests}
    result.add(RANDOM, **means)


def _class_sensitivity(first: Tensor, second: Tensor) -> float:
    """How much a map differs from that of the second class: 0 for the same map, 1 for no overlap."""
    p, q = (x.clamp(min=0).double() for x in (first, second))
    if not float(p.sum()) or not float(q.sum()):
        return float("nan")
    return float(jsd(p / p.sum(), q / q.sum())) / MAX_JSD


def _add_counterfactuals(
    adapter: ModelAdapter,
    trace: DecisionTrace,
    attention: AttentionAt,
    settings: AuditSettings,
    rng: torch.Generator,
    results: Sequence[ExampleResult],
) -> None:
    """Change the weights of every head of a place, and of all its heads together."""
    rows, place = trace.rows, attention.place
    counterfactual = Counterfactual(adapter, rows, place, max(1, MAX_BATCH_ROWS // len(rows)))
    single = [] if attention.heads == 1 else [(f"{place}/{head}", [head]) for head in range(attention.heads)]
    for name, heads in [*single, (place, None)]:
        scores = _HeadTests(counterfactual, attention, heads, settings, rng).run(trace.lengths)
        for at, result in enumerate(results):
            result.add(name, **{test: float(values[at]) for test, values in scores.items()})
    if attention.heads == 1:  # the only head is its layer
        for result in results:
            result.maps[f"{place}/0"].update(result.maps[place])


@dataclass(frozen=True, eq=False)
class _HeadTests:
    """The counterfactual tests of some heads of a place, all if None."""

    counterfactual: Counterfactual
    attention: AttentionAt
    heads: list[int] | None
    settings: AuditSettings
    rng: torch.Generator

    def run(self, lengths: Tensor) -> dict[str, Tensor]:
        """By test, a number for each text, (B,)."""
        counterfactual, heads, plain = self.counterfactual, self.heads, self.counterfactual.plain
        with torch.no_grad():
            permuted = predict_permuted(counterfactual, heads, self.settings.permutations, self.rng)
            uniform = predict_uniform(counterfactual, heads)
            erasure = self._erasure(lengths)
        adversary = find_adversary(counterfactual, heads, self.settings.search, self.rng)
        return {
            "permuted": tvd(permuted, plain).mean(0),
            "permuted_flips": decision_flips(permuted, plain).mean(0),
            "uniform": tvd(uniform, plain),
            "uniform_flips": decision_flips(uniform, plain),
            "adversarial_jsd": adversary.jsd,
            "adversarial_overlap": adversary.overlap,
            "largest_weight": counterfactual.weights[:, heads or slice(None)].mean((1, 2)).max(-1).values,
        } | erasure

    def _erasure(self, lengths: Tensor) -> dict[str, Tensor]:
        """Erasure in the order of attention, of its gradient, of their product, and in random order."""
        weights, gradients = self.attention.weights, self.attention.gradients
        scores = {"attention": weights, "gradient": gradients, "gradient_x_attention": weights * gradients}
        orders = {name: self._mean(x, lengths) for name, x in scores.items()}
        flips = {name: self._erase(order) for name, order in orders.items()}
        shape = orders["attention"].shape
        drawn = [self._erase(torch.rand(shape, generator=self.rng)) for _ in range(self.settings.random_orders)]
        return {f"erased_{name}_share": share for name, (_, share) in flips.items()} | {
            "erased_flips": flips["attention"][0],
            "erased_random_flips": torch.stack([first for first, _ in drawn]).mean(0),
            "erased_random_share": torch.stack([share for _, share in drawn]).mean(0),
        }

    def _mean(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, H, T, S) of the readout query, the mean of these heads: (B, S)."""
        return self.attention.at_readout(x, lengths)[:, self.heads or slice(None)].mean(1)

    def _erase(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return erase_until_flip(self.counterfactual, self.heads, rank_tokens(scores, self.counterfactual.is_token))
