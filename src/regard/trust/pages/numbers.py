"""Tables: some tests of some maps, and every number that an audit found."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regard.trust.findings import Finding, Findings
from regard.trust.intervals import Estimate
from regard.trust.pages.terms import METHODS, TESTS, called, interval, label, told, written


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
