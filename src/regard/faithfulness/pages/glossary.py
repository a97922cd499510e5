"""The glossary of the report page: names and meanings of tests, maps and verdicts; the format of their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from regard.faithfulness.findings import MIN_DIVERGENCE, Findings, Status
from regard.inspection import ConfidenceInterval


@dataclass(frozen=True)
class MetricInfo:
    """A number of a test: its column label, its meaning, and its format: a share is written in percent, a gain in
    percent with its sign."""

    label: str
    meaning: str
    form: Literal["share", "gain", "number"] = "share"


TESTS: dict[str, MetricInfo] = {
    "tau_gradient": MetricInfo(
        "τ with gradient",
        "agreement of the map's ranking of the words with that of the gradient (Kendall's tau, from -1 to 1)",
        "number",
    ),
    "tau_leave_one_out": MetricInfo(
        "τ with leave-one-out",
        "agreement with the ranking by leave-one-out: how much the output changes without each word (Kendall's tau)",
        "number",
    ),
    "permuted": MetricInfo(
        "change when permuted", "change of the output (total variation) when the weights are permuted at random"
    ),
    "permuted_flips": MetricInfo("flips when permuted", "how often the predicted class changes then"),
    "uniform": MetricInfo("change when uniform", "change of the output (total variation) under uniform attention"),
    "uniform_flips": MetricInfo("flips when uniform", "how often the predicted class changes then"),
    "largest_weight": MetricInfo("largest weight", "the largest weight of the map, averaged over decisions"),
    "adversarial_jsd": MetricInfo(
        "adversarial divergence",
        "distance of the most different map that keeps the output (Jensen-Shannon divergence, from 0 to ln 2 = 0.69)",
        "number",
    ),
    "adversarial_overlap": MetricInfo("adversarial overlap", "overlap of that map with the real one"),
    "alternative_exists": MetricInfo(
        "alternative exists",
        f"how often that map is very different from the real one: a divergence of at least {MIN_DIVERGENCE}",
    ),
    "alternative_overlap": MetricInfo("alternative overlap", "overlap of the very different maps with the real one"),
    "erased_attention_share": MetricInfo(
        "erased by attention", "share of the weights to erase, largest first, until the predicted class changes"
    ),
    "erased_gradient_share": MetricInfo(
        "erased by gradient", "the same, in the order of the gradient with respect to each weight"
    ),
    "erased_gradient_x_attention_share": MetricInfo(
        "erased by gradient x attention", "the same, in the order of gradient times weight"
    ),
    "erased_random_share": MetricInfo("erased at random", "the same, in random order: the control"),
    "erased_flips": MetricInfo(
        "flips without largest", "how often the predicted class changes when only the largest weight is erased"
    ),
    "erased_random_flips": MetricInfo(
        "flips without random", "how often it changes when only a random weight is erased: the control"
    ),
    "erased_flips_gain": MetricInfo(
        "flips over random",
        "how much more often erasing the largest weight changes the class than a random one",
        "gain",
    ),
    "comprehensiveness": MetricInfo(
        "comprehensiveness", "probability lost when the map's top words are removed: higher is better", "gain"
    ),
    "sufficiency": MetricInfo(
        "sufficiency", "probability lost when only its top words are kept: lower is better", "gain"
    ),
    "comprehensiveness_gain": MetricInfo(
        "gain over random", "comprehensiveness minus that of as many random words", "gain"
    ),
    "class_sensitivity": MetricInfo(
        "class sensitivity", "how different the map of the second most likely class is: 0% the same, 100% no overlap"
    ),
    "precision": MetricInfo(
        "precision", "of the top words that hold half of the map, the share that are known to decide"
    ),
    "precision_gain": MetricInfo("precision over random", "precision minus that of random maps", "gain"),
    "recall": MetricInfo("recall", "of the words that are known to decide, the share among those top words"),
    "precision_at_1": MetricInfo("precision at 1", "how often the top word is known to decide"),
    "average_precision": MetricInfo(
        "average precision", "the mean precision at the rank of each deciding word: 100% where they rank first"
    ),
}

METHODS: dict[str, str] = {
    "attention": "attention weights of the last place whose keys are the text, the mean of its heads",
    "norm-based attention": "the same weights times the norms of the transformed values (Kobayashi et al. 2020)",
    "relevance": "relevance propagated through all layers, as far as weights raise the decision (Chefer et al. 2021)",
    "rollout": "attention rollout: the product of all layers' weights, with residuals (Abnar & Zuidema 2020)",
    "gradient x attention": "each weight times its gradient, summed over places and heads",
    "gradient x input": "each word's embedding times its gradient",
    "integrated gradients": "gradient x input, averaged from the zero embedding on (Sundararajan et al. 2017)",
    "random": "random numbers (control)",
    "gradient": "the gradient compared with leave-one-out: the agreement of two faithful rankings (control)",
}

STATUS_SYMBOLS: dict[Status, str] = {"explains": "✓", "informative": "~", "does not explain": "✗", "inconclusive": "?"}
STATUS_CLASSES: dict[Status, str] = {
    "explains": "explains",
    "informative": "informative",
    "does not explain": "fails",
    "inconclusive": "inconclusive",
}


def metric_label(test: str) -> str:
    return TESTS[test].label if test in TESTS else test


def format_value(test: str, value: float) -> str:
    """A number in the format of its test: 52%, +4%, 0.31."""
    form = TESTS[test].form if test in TESTS else "number"
    is_zero = abs(value) < (0.005 if form == "number" else 0.0005)  # which would be written as -0
    value = 0.0 if is_zero else value
    return {"share": f"{value:.1%}", "gain": f"{value:+.1%}", "number": f"{value:.2f}"}[form]


def format_interval(test: str, one: ConfidenceInterval) -> str:
    if one.low is None or one.high is None:
        return ""
    return f"[{format_value(test, one.low)}, {format_value(test, one.high)}]"


def display_names(report: Findings) -> dict[str, str]:
    """By map, its shortest unambiguous name; controls are marked."""
    kinds = {one.map: one.kind for one in report.findings}
    names = shorten_places([one for one, kind in kinds.items() if kind == "layer"])
    for one, kind in kinds.items():
        place, _, head = one.rpartition("/")
        if kind == "head":
            names[one] = f"{names.get(place, place)}/{head}"
        elif kind != "layer":
            names[one] = f"{one} (control)" if kind == "control" else one
    return names


def breakable(name: str) -> str:
    """A name as HTML that may break after a dot."""
    return escape(name).replace(".", ".<wbr>")


def shorten_places(places: list[str]) -> dict[str, str]:
    """Names of places without their common prefix, except for its last part: blocks.0.self, blocks.1.self."""
    parts = [place.split(".") for place in places]
    same = [len(set(some)) == 1 for some in zip(*parts, strict=False)] if len(places) > 1 else []
    common = [*same, False].index(False)
    return {place: ".".join(one[max(0, common - 1) :]) for place, one in zip(places, parts, strict=True)}
