"""An audit as one page: what to believe, every test with its figure, a few decisions, all numbers. No network."""

from __future__ import annotations

from html import escape
from typing import Any

from regard import html
from regard.trust.findings import Findings
from regard.trust.pages.decisions import decisions
from regard.trust.pages.numbers import everything, meanings
from regard.trust.pages.sections import made, sections
from regard.trust.pages.style import SCRIPT, STYLE
from regard.trust.pages.verdicts import headline, verdicts


def page(report: Findings) -> str:
    """The HTML file as text; one report, the same bytes."""
    title = f"Is the attention of {report.facts['model']} an explanation?"
    examples = decisions(report)
    parts = [
        f'<header><h1>{escape(title)}</h1><p class="headline">{escape(headline(report))}</p>',
        f"{_asked(report.facts)}{_contents(report, examples)}</header>",
        f'<section id="verdicts"><h2>What to believe</h2>{verdicts(report)}</section>',
        sections(report),
        examples,
        f'<section id="numbers"><h2>Every number</h2>{_sure(report.facts)}{everything(report)}',
        f"{meanings(report)}</section>",
    ]
    body = "\n".join(part for part in parts if part)
    return html.page(title, body, style=STYLE, script=SCRIPT, inline_styles=True)


def _asked(facts: Any) -> str:
    """What the page is about, the model, what it decides, how often it is right."""
    right, number = facts["accuracy"], facts["decisions"]
    told = "not known which are right"
    if right is not None:
        reach = "" if right["low"] is None else f" [{right['low']:.1%}, {right['high']:.1%}]"
        told = f"right in {right['value']:.1%}{reach}"
    asked = f"{number:,} decision{'s' * (number != 1)}"
    return (
        "<p>Attention gives every word a weight, and it is tempting to read the largest weights as the reason for what "
        "a model says. Here its weights are put to tests, each beside a control that shows what chance would do.</p>"
        f"<p>Model: <b>{escape(facts['model'])}</b>. It decides on: {escape(facts['decides'])}. {asked}, {told}.</p>"
        f"<p><small>{escape(_settings(facts['settings']))}</small></p>"
    )


def _settings(settings: Any) -> str:
    search, sizes = settings["search"], ", ".join(f"{size:.0%}" for size in settings["sizes"])
    return (
        f"Settings: places {' '.join(settings['places'])}; {settings['permutations']} exchanges of the weights; other "
        f"maps from {search['starts']} starts of {search['steps']} steps, the output moving by at most "
        f"{search['tolerance']:.0%}; {settings['orders']} random orders; rationales of {sizes} of the words; seed "
        f"{settings['seed']}. Brackets and lines are {settings['level']:.0%} intervals."
    )


def _contents(report: Findings, examples: str) -> str:
    names = {"verdicts": "what to believe"} | {one.name: one.called for one in made(report)}
    names |= {"decisions": "a few decisions"} if examples else {}
    links = (f'<a href="#{name}">{called}</a>' for name, called in (names | {"numbers": "every number"}).items())
    return f"<nav>{' · '.join(links)}</nav>"


def _sure(facts: Any) -> str:
    settings = facts["settings"]
    return (
        f"<p><small>Intervals hold the true mean in {settings['level']:.0%} of cases; they come from "
        f"{settings['samples']:,} draws of the examples (bootstrap), whole examples at a time. None is told of fewer "
        "than three examples. With many maps some intervals miss the truth by chance: one in twenty at 95%.</small></p>"
    )
