"""The tables of the report page: the verdict on every map, and every number with its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regard.faithfulness.findings import BADGES, Finding, Findings, Status, Verdict
from regard.faithfulness.pages.glossary import (
    METHODS,
    STATUS_CLASSES,
    STATUS_SYMBOLS,
    TESTS,
    breakable,
    display_names,
    format_interval,
    format_value,
    metric_label,
    shorten_places,
)
from regard.inspection import ConfidenceInterval


def render_table(report: Findings, maps: Sequence[str], tests: Sequence[str]) -> str:
    """A row for each map, a column for each test: means with confidence intervals."""
    head = "".join(f'<th scope="col">{escape(metric_label(test))}</th>' for test in tests)
    rows = []
    names = display_names(report)
    for name in maps:
        estimates = report.estimates(name)
        cells = "".join(f'<td class="number">{_cell(test, estimates.get(test))}</td>' for test in tests)
        rows.append(f'<tr><th scope="row" title="{escape(name)}">{breakable(names[name])}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><thead><tr><th scope="col">map</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def render_findings(report: Findings) -> str:
    """Every finding, folded: methods, controls, layers, and the heads of each layer."""
    groups: dict[str, list[Finding]] = {}
    for one in report.findings:
        place = one.map.rpartition("/")[0]
        group = {"method": "methods", "control": "controls", "layer": "layers"}.get(one.kind, f"heads of {place}")
        groups.setdefault(group, []).append(one)
    return "".join(
        f'<details class="long"><summary>{escape(group)}</summary>{_findings_table(findings)}</details>'
        for group, findings in groups.items()
    )


def render_glossary(report: Findings) -> str:
    """The tests and methods of this report, with their meanings."""
    present = list(dict.fromkeys(one.test for one in report.findings))
    tests = [(TESTS[test].label, f"{TESTS[test].meaning} (in JSON “{test}”)") for test in TESTS if test in present]
    maps = [(name, METHODS[name]) for name in METHODS if name in report.maps]
    return (
        f"<h3>Tests</h3>{_definitions(tests)}<h3>Maps</h3>"
        "<p><small>A map gives each word a number. A layer's map is the mean of its heads, for the query from which "
        "the decision is read, or averaged over all queries where there is no single one.</small></p>"
        f"{_definitions(maps)}"
    )


def _definitions(terms: Sequence[tuple[str, str]]) -> str:
    return f'<dl class="terms">{"".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in terms)}</dl>'


def _cell(test: str, one: ConfidenceInterval | None) -> str:
    return "" if one is None else f"{format_value(test, one.value)}<br><span>{format_interval(test, one)}</span>"


def _findings_table(findings: Sequence[Finding]) -> str:
    rows, last = [], ""
    for one in findings:
        if one.map != last:
            last = one.map
            rows.append(f'<tr class="group"><th scope="rowgroup" colspan="4">{breakable(one.map)}</th></tr>')
        rows.append(
            f'<tr><th scope="row">{escape(metric_label(one.test))}</th>'
            f'<td class="number">{format_value(one.test, one.estimate.value)}</td>'
            f'<td class="number">{format_interval(one.test, one.estimate)}</td>'
            f'<td class="number">{one.estimate.count}</td></tr>'
        )
    columns = "".join(f'<th scope="col">{name}</th>' for name in ("test", "mean", "interval", "examples"))
    return f'<div class="wide"><table><thead><tr>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


_ONE_LAYER: dict[Status, str] = {
    "explains": "The attention of this model explains its decisions.",
    "informative": "The attention of this model is informative, but not shown to be the reason for its decisions.",
    "does not explain": "The attention of this model does not explain its decisions.",
    "inconclusive": "There are too few examples to say whether this model's attention explains its decisions.",
}
_ALL_LAYERS: dict[Status, str] = {
    "explains": "All {} layers explain the model's decisions.",
    "informative": "All {} layers are informative, but none is shown to be the reason for the model's decisions.",
    "does not explain": "None of the {} layers explains the model's decisions.",
    "inconclusive": "There are too few examples to say whether any of the {} layers explains the model's decisions.",
}
_SOME_LAYERS: dict[Status, tuple[str, str]] = {  # of one layer, of several
    "explains": ("explains the model's decisions", "explain the model's decisions"),
    "informative": (
        "is informative but not shown to be the reason",
        "are informative but not shown to be the reason",
    ),
    "does not explain": ("does not explain them", "do not explain them"),
    "inconclusive": ("cannot be judged from so few examples", "cannot be judged from so few examples"),
}


def write_headline(report: Findings) -> str:
    """One sentence on all layers."""
    statuses = [one.status for one in report.verdicts if one.kind == "layer"]
    if not statuses:
        return "No layer was tested."
    if len(set(statuses)) == 1:
        return _ONE_LAYER[statuses[0]] if len(statuses) == 1 else _ALL_LAYERS[statuses[0]].format(len(statuses))
    counted = [(status, statuses.count(status)) for status in STATUS_SYMBOLS if status in statuses]
    parts = [f"{count} {_SOME_LAYERS[status][count > 1]}" for status, count in counted]
    return f"Of {len(statuses)} layers, {', '.join(parts[:-1])} and {parts[-1]}."


def render_verdicts(report: Findings) -> str:
    """Every verdict: layers, each with its heads folded; the grid of all heads; methods."""
    numbers = {one.map: number for number, one in enumerate(report.verdicts)}
    heads: dict[str, list[Verdict]] = {}
    for one in report.verdicts:
        if one.kind == "head":
            heads.setdefault(one.map.rpartition("/")[0], []).append(one)
    layers = [one for one in report.verdicts if one.kind == "layer"]
    parts = [_legend()]
    if any(len(some) > 1 for some in heads.values()):
        parts.append(_grid(heads, numbers))
    for one in layers:
        parts.append(_card(one, numbers[one.map], "layer", _folded_heads(heads.get(one.map, []), numbers)))
    methods = [one for one in report.verdicts if one.kind == "method"]
    if methods:
        parts.append(
            "<h3>Other attribution methods</h3>"
            '<p class="faint">A method ranks the words by other means. It can be tested for whether its top words '
            "matter; it has no attention weights that could be permuted.</p>"
        )
        cards = "".join(_card(one, numbers[one.map], "method") for one in methods)
        parts.append(f'<div class="methods">{cards}</div>')
    return "\n".join(parts)


def anchor_id(number: int) -> str:
    return f"verdict-{number}"


def _legend() -> str:
    meanings: dict[Status, str] = {
        "explains": "its top words matter, the output depends on its weights, and no very different map gives the same "
        "output",
        "informative": "its top words matter, but the output does not depend on its weights, or another map gives the "
        "same output",
        "does not explain": "its top words matter no more than random words",
    }
    items = [
        f'<li class="{STATUS_CLASSES[status]}"><small><span class="status">{_symbol(status)} {escape(BADGES[status])}'
        f"</span>: {meaning}</small></li>"
        for status, meaning in meanings.items()
    ]
    return f'<ul class="key">{"".join(items)}</ul>'


def _symbol(status: Status) -> str:
    return f'<span class="sign" aria-hidden="true">{STATUS_SYMBOLS[status]}</span>'


def _card(one: Verdict, number: int, kind: str, more: str = "") -> str:
    # only the top words of a method are tested, so its badge says no more than that
    badge = (
        "informative: its top words matter" if (kind, one.status) == ("method", "informative") else BADGES[one.status]
    )
    about = f"<p><small>{escape(METHODS[one.map])}</small></p>" if kind == "method" and one.map in METHODS else ""
    return (
        f'<article class="verdict {kind} {STATUS_CLASSES[one.status]}" id="{anchor_id(number)}">'
        f'<h3>{breakable(one.map)}</h3><p class="status">{_symbol(one.status)} {escape(badge)}</p>'
        f"<p>{escape(one.reason)}</p>{about}{more}</article>"
    )


def _folded_heads(heads: list[Verdict], numbers: dict[str, int]) -> str:
    if not heads:
        return ""
    cards = "".join(_card(one, numbers[one.map], "head") for one in heads)
    summary = f"its {len(heads)} heads" if len(heads) > 1 else "its only head"
    return f"<details><summary>{summary}</summary>{cards}</details>"


def _grid(heads: dict[str, list[Verdict]], numbers: dict[str, int]) -> str:
    """A row for each layer, a column for each head: the status, linked to the verdict."""
    names = shorten_places(list(heads))
    columns = max(len(some) for some in heads.values())
    top = "".join(f'<th scope="col">{head}</th>' for head in range(columns))
    rows = "".join(
        f'<tr><th scope="row">{_layer_link(place, names[place], numbers)}</th>'
        f"{''.join(_head_cell(one, numbers[one.map]) for one in some)}</tr>"
        for place, some in heads.items()
    )
    return (
        "<h3>All heads</h3>"
        f'<div class="wide"><table class="grid"><thead><tr><th scope="col">head</th>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _layer_link(place: str, name: str, numbers: dict[str, int]) -> str:
    if place not in numbers:
        return escape(name)
    return f'<a href="#{anchor_id(numbers[place])}" title="{escape(place)}">{escape(name)}</a>'


def _head_cell(one: Verdict, number: int) -> str:
    place, _, head = one.map.rpartition("/")
    text = escape(f"{place}, head {head}: {BADGES[one.status]}")
    return (
        f'<td class="{STATUS_CLASSES[one.status]}"><a href="#{anchor_id(number)}" title="{text}" aria-label="{text}">'
        f"{STATUS_SYMBOLS[one.status]}</a></td>"
    )
