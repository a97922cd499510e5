"""The tables of an audit's page: what to believe of every map, and every number with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regard.faithfulness.findings import BADGES, Finding, Findings, Status, Verdict
from regard.faithfulness.pages.glossary import (
    CLASSES,
    METHODS,
    SIGNS,
    TESTS,
    called,
    interval,
    label,
    short,
    told,
    written,
)
from regard.inspection import Estimate


def table(report: Findings, maps: Sequence[str], tests: Sequence[str]) -> str:
    """A row for each map, a column for each test: means, and the intervals in which they lie."""
    head = "".join(f'<th scope="col">{escape(label(test))}</th>' for test in tests)
    rows = []
    names = called(report)
    for name in maps:
        found = report.of(name)
        cells = "".join(f'<td class="number">{_cell(test, found.get(test))}</td>' for test in tests)
        rows.append(f'<tr><th scope="row" title="{escape(name)}">{written(names[name])}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><thead><tr><th scope="col">map</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def everything(report: Findings) -> str:
    """Every finding, folded: methods and controls, layers, and the heads of each layer."""
    groups: dict[str, list[Finding]] = {}
    for one in report.findings:
        place = one.map.rpartition("/")[0]
        named = {"method": "methods", "control": "controls", "layer": "layers"}.get(one.kind, f"heads of {place}")
        groups.setdefault(named, []).append(one)
    return "".join(
        f'<details class="long"><summary>{escape(named)}</summary>{_long(findings)}</details>'
        for named, findings in groups.items()
    )


def meanings(report: Findings) -> str:
    """What the names of the tests and of the methods mean, of those that are there."""
    made = list(dict.fromkeys(one.test for one in report.findings))
    tests = [(TESTS[test].label, f"{TESTS[test].meaning} (in JSON “{test}”)") for test in TESTS if test in made]
    maps = [(name, METHODS[name]) for name in METHODS if name in report.maps]
    return (
        f"<h3>What the tests are called</h3>{_terms(tests)}<h3>What the maps are</h3>"
        "<p><small>A map gives each word a number. A layer's map is the mean of its heads, of the query that the "
        "decision is read from, or of all queries where there is no single one.</small></p>"
        f"{_terms(maps)}"
    )


def _terms(terms: Sequence[tuple[str, str]]) -> str:
    return f'<dl class="terms">{"".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in terms)}</dl>'


def _cell(test: str, one: Estimate | None) -> str:
    return "" if one is None else f"{told(test, one.value)}<br><span>{interval(test, one)}</span>"


def _long(findings: Sequence[Finding]) -> str:
    rows, last = [], ""
    for one in findings:
        if one.map != last:
            last = one.map
            rows.append(f'<tr class="group"><th scope="rowgroup" colspan="4">{written(one.map)}</th></tr>')
        rows.append(
            f'<tr><th scope="row">{escape(label(one.test))}</th>'
            f'<td class="number">{told(one.test, one.estimate.value)}</td>'
            f'<td class="number">{interval(one.test, one.estimate)}</td>'
            f'<td class="number">{one.estimate.count}</td></tr>'
        )
    columns = "".join(f'<th scope="col">{name}</th>' for name in ("test", "mean", "interval", "examples"))
    return f'<div class="wide"><table><thead><tr>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


_ALONE: dict[Status, str] = {
    "explains": "The attention of this model explains what it decides.",
    "points": "The attention of this model points at words that matter, but is not shown to be the reason.",
    "does not explain": "The attention of this model does not explain what it decides.",
    "not known": "There are too few examples to say whether this model's attention explains what it decides.",
}
_ALL: dict[Status, str] = {
    "explains": "Every one of the {} layers explains what the model decides.",
    "points": "The {} layers point at words that matter, but none is shown to be the reason.",
    "does not explain": "None of the {} layers explains what the model decides.",
    "not known": "There are too few examples to say whether any of the {} layers explains what the model decides.",
}
_SOME: dict[Status, tuple[str, str]] = {  # of one layer, of several
    "explains": ("explains what the model decides", "explain what the model decides"),
    "points": (
        "points at words that matter but is not shown to be the reason",
        "point at words that matter but are not shown to be the reason",
    ),
    "does not explain": ("does not explain anything", "do not explain anything"),
    "not known": ("cannot be judged by so few examples", "cannot be judged by so few examples"),
}


def headline(report: Findings) -> str:
    """One sentence on all layers."""
    statuses = [one.status for one in report.verdicts if one.kind == "layer"]
    if not statuses:
        return "No layer was put to the tests."
    if len(set(statuses)) == 1:
        return _ALONE[statuses[0]] if len(statuses) == 1 else _ALL[statuses[0]].format(len(statuses))
    counted = [(status, statuses.count(status)) for status in SIGNS if status in statuses]
    parts = [f"{count} {_SOME[status][count > 1]}" for status, count in counted]
    return f"Of {len(statuses)} layers, {', '.join(parts[:-1])} and {parts[-1]}."


def verdicts(report: Findings) -> str:
    """Every verdict: layers, each with its heads folded; the grid of all heads; methods."""
    numbers = {one.map: number for number, one in enumerate(report.verdicts)}
    heads: dict[str, list[Verdict]] = {}
    for one in report.verdicts:
        if one.kind == "head":
            heads.setdefault(one.map.rpartition("/")[0], []).append(one)
    layers = [one for one in report.verdicts if one.kind == "layer"]
    parts = [_key()]
    if any(len(some) > 1 for some in heads.values()):
        parts.append(_grid(heads, numbers))
    for one in layers:
        parts.append(_card(one, numbers[one.map], "layer", _folded(heads.get(one.map, []), numbers)))
    methods = [one for one in report.verdicts if one.kind == "method"]
    if methods:
        parts.append(
            "<h3>Other ways to explain the same decisions</h3>"
            '<p class="faint">A method names the words that matter by other means. It can be tested on whether it '
            "points at them; it has no weights of its own that could be exchanged.</p>"
        )
        cards = "".join(_card(one, numbers[one.map], "method") for one in methods)
        parts.append(f'<div class="methods">{cards}</div>')
    return "\n".join(parts)


def anchor(number: int) -> str:
    return f"verdict-{number}"


def _key() -> str:
    meanings: dict[Status, str] = {
        "explains": "points at what matters, the output hangs on it, and no other map gives the same output",
        "points": "points at what matters, but nothing hangs on it or another map does as well",
        "does not explain": "its best words matter no more than words taken at random",
    }
    items = [
        f'<li class="{CLASSES[status]}"><small><span class="status">{_sign(status)} {escape(BADGES[status])}</span>: '
        f"{meaning}</small></li>"
        for status, meaning in meanings.items()
    ]
    return f'<ul class="key">{"".join(items)}</ul>'


def _sign(status: Status) -> str:
    return f'<span class="sign" aria-hidden="true">{SIGNS[status]}</span>'


def _card(one: Verdict, number: int, kind: str, more: str = "") -> str:
    # a method is asked one question alone, so its badge says no more than that
    badge = "points at words that matter" if (kind, one.status) == ("method", "points") else BADGES[one.status]
    about = f"<p><small>{escape(METHODS[one.map])}</small></p>" if kind == "method" and one.map in METHODS else ""
    return (
        f'<article class="verdict {kind} {CLASSES[one.status]}" id="{anchor(number)}"><h3>{written(one.map)}</h3>'
        f'<p class="status">{_sign(one.status)} {escape(badge)}</p>'
        f"<p>{escape(one.words)}</p>{about}{more}</article>"
    )


def _folded(heads: list[Verdict], numbers: dict[str, int]) -> str:
    if not heads:
        return ""
    cards = "".join(_card(one, numbers[one.map], "head") for one in heads)
    called = f"its {len(heads)} heads, one by one" if len(heads) > 1 else "its only head"
    return f"<details><summary>{called}</summary>{cards}</details>"


def _grid(heads: dict[str, list[Verdict]], numbers: dict[str, int]) -> str:
    """Layers down, heads across: the status of every head, which leads to its verdict."""
    names = short(list(heads))
    most = max(len(some) for some in heads.values())
    top = "".join(f'<th scope="col">{head}</th>' for head in range(most))
    rows = "".join(
        f'<tr><th scope="row">{_layer(place, names[place], numbers)}</th>'
        f"{''.join(_square(one, numbers[one.map]) for one in some)}</tr>"
        for place, some in heads.items()
    )
    return (
        "<h3>Every head</h3>"
        f'<div class="wide"><table class="grid"><thead><tr><th scope="col">head</th>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _layer(place: str, name: str, numbers: dict[str, int]) -> str:
    if place not in numbers:
        return escape(name)
    return f'<a href="#{anchor(numbers[place])}" title="{escape(place)}">{escape(name)}</a>'


def _square(one: Verdict, number: int) -> str:
    place, _, head = one.map.rpartition("/")
    says = escape(f"{place}, head {head}: {BADGES[one.status]}")
    return (
        f'<td class="{CLASSES[one.status]}"><a href="#{anchor(number)}" title="{says}" aria-label="{says}">'
        f"{SIGNS[one.status]}</a></td>"
    )
