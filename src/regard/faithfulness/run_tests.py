"""All tests on some decisions together, and how much is tried: what is measured of each decision, as plain numbers by
map and by test.

Nothing is averaged here. An audit is a list of what this gives, so parts of it made at different times, or by different
processes, are put together without a rest.
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
from regard.faithfulness.adversary import QUICK, Search, adversary
from regard.faithfulness.counterfactual import Trial, flipped, flipping, moved, order_of, permuted, uniform
from regard.faithfulness.maps import Looked, Seen, attention_maps, input_gradient, look, method_maps
from regard.faithfulness.token_erasure import SIZES, Answers, agreements, erasing, left_out, planted
from regard.inspection import LARGEST_JSD, jsd


@dataclass(frozen=True)
class Settings:
    """`places`: by pattern, as capture takes them. `permutations` of the weights, `orders`: random ones that serve as
    controls, `sizes` of rationales, `samples` of the bootstrap, `level` of its intervals, `chunk`: cases examined
    together; the result does not depend on how chunks are shared out."""

    places: str | Sequence[str] = "*"
    permutations: int = 24
    search: Search = QUICK
    orders: int = 3
    sizes: Sequence[float] = SIZES
    samples: int = 1000
    level: float = 0.95
    seed: int = 0
    chunk: int = 16

    def __post_init__(self) -> None:
        for name in ("permutations", "orders", "samples", "chunk"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}={getattr(self, name)}", "at least 1", where="audit")
        if not 0 < self.level < 1:
            raise SettingError(f"level={self.level}", "a share between 0 and 1", where="audit")
        if not self.sizes or not all(0 < size <= 1 for size in self.sizes):
            raise SettingError(f"sizes={self.sizes}", "shares of the tokens, over 0 and up to 1", where="audit")

    def told(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {"places": [self.places] if isinstance(self.places, str) else list(self.places)}


Numbers = dict[str, float]
RANDOM = "random"
ROWS = 128  # texts that a trial puts to the model at once, its copies among them


@dataclass
class Examined:
    """One decision: what was decided of example `number`, how likely, whether it was right, and by map (heads are
    "PLACE/HEAD", layers "PLACE", methods by their names) what each test measured. `shown`: the maps themselves, of
    layers and methods; `evidence`: the tokens that decide, where somebody knows."""

    number: int
    tokens: tuple[str, ...]
    chosen: str
    p: float
    right: bool | None
    maps: dict[str, Numbers] = field(default_factory=dict)
    shown: dict[str, list[float]] = field(default_factory=dict)
    evidence: list[int] | None = None

    def add(self, name: str, **numbers: float) -> None:
        known = {test.replace("_", " "): value for test, value in numbers.items() if not isnan(value)}
        self.maps.setdefault(name, {}).update(known)

    def told(self) -> dict[str, Any]:
        return asdict(self)


def examine(asker: ModelAdapter, cases: Sequence[Case], settings: Settings, part: int) -> list[Examined]:
    """Every test on these cases; chance is that of part number `part` of the audit, whoever examines it."""
    # torch heeds 32 bits of a seed
    chance = torch.Generator().manual_seed(Random(f"{settings.seed} {part}").getrandbits(32))
    rows = [case.row for case in cases]
    looked = look(asker, rows, settings.places)
    found = [_decided(asker, looked, case, at) for at, case in enumerate(cases)]
    maps = attention_maps(looked) | method_maps(asker, looked)
    second = method_maps(asker, looked, second=True)
    answers = Answers(asker)
    said = looked.said.exp()
    references = {
        "tau gradient": input_gradient(asker, rows, looked.chosen, fixed=True),
        "tau left out": left_out(answers, rows, said),
    }
    for at, (case, one) in enumerate(zip(cases, found, strict=True)):
        size = len(case.row.ids)
        own = {name: values[at, :size] for name, values in maps.items()}
        chances = [torch.rand(size, generator=chance) for _ in range(settings.orders)]
        _agreeing(one, own, {name: values[at, :size] for name, values in references.items()}, chances, case)
        _rationales(one, answers, case, int(looked.chosen[at]), own, chances, settings)
        one.shown = {name: [round(x, 4) for x in values.tolist()] for name, values in own.items() if "/" not in name}
        for name, values in maps.items():
            one.add(name, class_change=_changed(values[at, :size], second.get(name, values)[at, :size]))
    for seen in looked.seen:
        _tried(asker, looked, seen, settings, chance, found)
    return found


def _decided(asker: ModelAdapter, looked: Looked, case: Case, at: int) -> Examined:
    chosen = int(looked.chosen[at])
    right = None if case.expected is None else chosen == case.expected
    evidence = None if case.evidence is None else sorted(case.evidence)
    p = round(float(looked.p[at]), 6)
    return Examined(case.number, case.tokens, asker.label(chosen), p, right, evidence=evidence)


def _agreeing(
    one: Examined, maps: Mapping[str, Tensor], references: Mapping[str, Tensor], chances: Sequence[Tensor], case: Case
) -> None:
    """Agreement with gradient and leave-one-out, beside that of chance and of these two with each other."""
    free = case.row.free
    everything = {**maps, **{f"{RANDOM} {n}": x for n, x in enumerate(chances)}, "gradient": references["tau gradient"]}
    found = agreements(everything, references, free).tolist()
    named = dict(zip(everything, found, strict=True))
    for name in maps:
        one.add(name, tau_gradient=named[name][0], tau_left_out=named[name][1])
    drawn = [named[f"{RANDOM} {n}"] for n in range(len(chances))]
    known = [pair for pair in drawn if not isnan(pair[0]) and not isnan(pair[1])]
    if known:
        one.add(
            RANDOM,
            tau_gradient=sum(pair[0] for pair in known) / len(known),
            tau_left_out=sum(pair[1] for pair in known) / len(known),
        )
    one.add("gradient", tau_left_out=named["gradient"][1])


def _rationales(
    one: Examined,
    answers: Answers,
    case: Case,
    chosen: int,
    maps: Mapping[str, Tensor],
    chances: Sequence[Tensor],
    settings: Settings,
) -> None:
    """What is left of the decision without a rationale and with it alone; and, where it is known which tokens decide,
    whether the map finds them."""
    if not any(case.row.free):
        return
    drawn = {f"{RANDOM} {number}": scores for number, scores in enumerate(chances)}
    every = {**maps, **drawn}
    p = float(answers([case.row])[0, chosen])
    found = erasing(answers, case.row, chosen, p, every, settings.sizes)
    truth = {} if not case.evidence else {name: planted(x, case.row, case.evidence) for name, x in every.items()}
    for name in maps:
        one.add(name, comprehensiveness=found[name][0], sufficiency=found[name][1], **truth.get(name, {}))
    pairs = [found[name] for name in drawn]
    means = {
        "comprehensiveness": sum(pair[0] for pair in pairs) / len(pairs),
        "sufficiency": sum(pair[1] for pair in pairs) / len(pairs),
    }
    if truth:
        tests = truth[next(iter(drawn))]
        means |= {test: sum(truth[name][test] for name in drawn) / len(drawn) for test in tests}
    one.add(RANDOM, **means)


def _changed(first: Tensor, second: Tensor) -> float:
    """How much a map changes when it is asked about the second class: 0 the same, 1 nothing shared."""
    p, q = (x.clamp(min=0).double() for x in (first, second))
    if not float(p.sum()) or not float(q.sum()):
        return float("nan")
    return float(jsd(p / p.sum(), q / q.sum())) / LARGEST_JSD


def _tried(
    asker: ModelAdapter,
    looked: Looked,
    seen: Seen,
    settings: Settings,
    chance: torch.Generator,
    found: Sequence[Examined],
) -> None:
    """Every head of a place, and all of them together, made to look elsewhere."""
    rows = looked.rows
    trial = Trial(asker, rows, seen.place, max(1, ROWS // len(rows)))
    alone = [] if seen.heads == 1 else [(f"{seen.place}/{head}", [head]) for head in range(seen.heads)]
    for name, heads in [*alone, (seen.place, None)]:
        numbers = _Elsewhere(trial, seen, heads, settings, chance).numbers(looked.lengths)
        for at, one in enumerate(found):
            one.add(name, **{test: float(values[at]) for test, values in numbers.items()})
    if seen.heads == 1:  # the only head is its layer
        for one in found:
            one.maps[f"{seen.place}/0"].update(one.maps[seen.place])


@dataclass(frozen=True, eq=False)
class _Elsewhere:
    """Some heads of a place, all if None, that are made to look elsewhere."""

    trial: Trial
    seen: Seen
    heads: list[int] | None
    settings: Settings
    chance: torch.Generator

    def numbers(self, lengths: Tensor) -> dict[str, Tensor]:
        """By test, a number for each text, (B,)."""
        trial, heads, plain = self.trial, self.heads, self.trial.plain
        with torch.no_grad():
            exchanged = permuted(trial, heads, self.settings.permutations, self.chance)
            even = uniform(trial, heads)
            sizes = self._sizes(lengths)
        other = adversary(trial, heads, self.settings.search, self.chance)
        return {
            "permuted": moved(exchanged, plain).mean(0),
            "permuted_flips": flipped(exchanged, plain).mean(0),
            "uniform": moved(even, plain),
            "uniform_flips": flipped(even, plain),
            "adversarial_jsd": other.jsd,
            "adversarial_shared": other.shared,
            "largest_weight": trial.weights[:, heads or slice(None)].mean((1, 2)).max(-1).values,
        } | sizes

    def _sizes(self, lengths: Tensor) -> dict[str, Tensor]:
        """Erasure in the order of attention, of its gradient, of both, and of chance."""
        weights, slopes = self.seen.weights, self.seen.slopes
        scores = {"attention": weights, "gradient": slopes, "gradient_x_attention": weights * slopes}
        orders = {name: self._mean(x, lengths) for name, x in scores.items()}
        flips = {name: self._flipping(order) for name, order in orders.items()}
        shape = orders["attention"].shape
        drawn = [self._flipping(torch.rand(shape, generator=self.chance)) for _ in range(self.settings.orders)]
        return {f"erased_{name}_share": share for name, (_, share) in flips.items()} | {
            "erased_flips": flips["attention"][0],
            "erased_random_flips": torch.stack([first for first, _ in drawn]).mean(0),
            "erased_random_share": torch.stack([share for _, share in drawn]).mean(0),
        }

    def _mean(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, H, T, S) of the queries that decide, the mean of these heads: (B, S)."""
        return self.seen.rows(x, lengths)[:, self.heads or slice(None)].mean(1)

    def _flipping(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return flipping(self.trial, self.heads, order_of(scores, self.trial.real))
