"""The report of an audit as one offline HTML page: verdicts, every test with its figure, examples, all numbers."""

from __future__ import annotations

from html import escape
from typing import Any

from regard import html
from regard.faithfulness.findings import Findings
from regard.faithfulness.pages.decisions import render_decisions
from regard.faithfulness.pages.sections import present_sections, render_sections
from regard.faithfulness.pages.tables import render_findings, render_glossary, render_verdicts, write_headline
from regard.html import BASE_STYLE

STYLE = (
    BASE_STYLE
    + """
:root { --blue: #2b5fc2; --orange: #c4610a; --purple: #8444a8; --band: #9aa3b2 }
:root { --good: #0a7350; --some: #8a5a00; --bad: #b3261e; --for: 43 95 194; --against: 196 97 10 }
@media (prefers-color-scheme: dark) {
  :root { --blue: #8db4ff; --orange: #f0a35e; --purple: #cf9cf0; --band: #596273 }
  :root { --good: #5ecfa5; --some: #e8bd5c; --bad: #ff9a90; --for: 110 160 255; --against: 240 163 94 }
}
* { box-sizing: border-box }
html { scroll-padding-top: 1rem }
h1 { font-size: 1.1rem; color: var(--faint); font-weight: 600; margin: 0 }
h2 { margin: 3.5rem 0 .5rem; font-size: 1.35rem; line-height: 1.3 }
h3 { margin: 2rem 0 .5rem; font-size: 1rem }
p { margin: .5rem 0 }
.headline { font-size: 1.9rem; line-height: 1.25; font-weight: 650; margin: .6rem 0 1.2rem; text-wrap: balance }
figcaption { color: var(--faint) }
small, figcaption { font-size: .85rem }
.explains { --status: var(--good) }
.informative { --status: var(--some) }
.fails { --status: var(--bad) }
.inconclusive { --status: var(--faint) }
.verdict { border-left: .3rem solid var(--status); padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0 }
.verdict h3 { margin: 0; font-size: 1rem; font-weight: 600 }
.verdict p { margin: .2rem 0 }
.status { color: var(--status); font-weight: 650 }
.layer > .status { font-size: 1.35rem; line-height: 1.3 }
.sign { display: inline-block; min-width: 1.1em; font-weight: 700 }
.methods { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 1.5rem }
.methods p:not(.status) { font-size: .9rem }
.verdict:target { outline: 2px solid var(--accent); outline-offset: .4rem }
details { margin: .5rem 0 }
summary { cursor: pointer; color: var(--accent); font-size: .9rem }
.wide { overflow-x: auto; margin: .8rem 0 }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top }
th { font-weight: 600 }
nav { font-size: .9rem; margin: 1.2rem 0 }
thead th { color: var(--faint); border-bottom: 1px solid var(--line); vertical-align: bottom }
tbody th { font-weight: 500; min-width: 8rem }
td.number { white-space: nowrap }
td span { color: var(--faint) }
.group th { padding-top: 1rem; font-weight: 650 }
.grid td { padding: 1px }
.grid tbody th { white-space: nowrap; padding-right: 1rem; vertical-align: middle; min-width: 0 }
.grid thead th { text-align: center; padding: 0 1px .2rem; border: 0; font-weight: 500 }
.grid thead th:first-child { text-align: left }
.grid td a { display: block; width: 2rem; height: 2rem; line-height: 2rem; text-align: center; text-decoration: none }
.grid td a { font-weight: 700; border-radius: .2rem; color: var(--status); border: 1px solid var(--status) }
.grid td a { background: color-mix(in srgb, var(--status) 12%, transparent) }
.grid td a:hover { outline: 2px solid var(--accent) }
.key { list-style: none; padding: 0; margin: .6rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem }
figure { margin: 1rem 0; overflow-x: auto }
figure svg { display: block; width: 100%; height: auto; min-width: 30rem }
.decision { border-top: 1px solid var(--line); padding: 1.2rem 0; margin-top: 1.2rem }
.decision h3 { margin-top: 0 }
.shaded { display: grid; grid-template-columns: 11rem 1fr; gap: .3rem 1rem; margin: .7rem 0 0 }
.shaded dt { color: var(--faint); font-size: .85rem; overflow-wrap: anywhere }
.shaded dd { margin: 0; unicode-bidi: isolate }
mark { color: inherit; padding: .12em .1em; border-radius: .15em }
mark { background: rgb(var(--for) / calc(var(--w) * .6)) }
mark.against { background: rgb(var(--against) / calc(var(--w) * .6)); border-bottom: 1.5px dashed rgb(var(--against)) }
dl.terms { display: grid; grid-template-columns: 13rem 1fr; gap: .2rem 1rem; font-size: .85rem; margin: .8rem 0 }
dl.terms dt { font-weight: 600 }
dl.terms dd { margin: 0; color: var(--faint) }
@media (max-width: 40rem) {
  body { margin: 1.5rem auto; padding: 0 1rem }
  .headline { font-size: 1.5rem }
  .shaded, dl.terms { grid-template-columns: 1fr; gap: 0 }
  .shaded dd, dl.terms dd { margin-bottom: .6rem }
}
@media print {
  body { margin: 0; max-width: none; font-size: 10.5pt }
  figure, .verdict, .decision { break-inside: avoid }
  figure, .wide { overflow: visible }
  h2, h3, summary { break-after: avoid }
  mark, .verdict, .grid td a { print-color-adjust: exact }
}
"""
)

# open folded elements that are linked to, and before printing all but the long tables
SCRIPT = """
const unfold = () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
  target?.scrollIntoView();
};
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => {
  for (const at of document.querySelectorAll("details:not(.long)")) at.open = true;
});
unfold();
"""


def render_report(report: Findings) -> str:
    """The HTML file as text; the same bytes for the same report."""
    title = f"Is the attention of {report.facts['model']} an explanation?"
    examples = render_decisions(report)
    parts = [
        f'<header><h1>{escape(title)}</h1><p class="headline">{escape(write_headline(report))}</p>',
        f"{_introduction(report.facts)}{_navigation(report, examples)}</header>",
        f'<section id="verdicts"><h2>Verdicts</h2>{render_verdicts(report)}</section>',
        render_sections(report),
        examples,
        f'<section id="numbers"><h2>All numbers</h2>{_interval_note(report.facts)}{render_findings(report)}',
        f"{render_glossary(report)}</section>",
    ]
    body = "\n".join(part for part in parts if part)
    return html.render_page(title, body, style=STYLE, script=SCRIPT, inline_styles=True)


def _introduction(facts: Any) -> str:
    """The purpose of the page, the model, its kind of decision, its accuracy."""
    right, number = facts["accuracy"], facts["decisions"]
    accuracy = "accuracy unknown"
    if right is not None:
        interval = "" if right["low"] is None else f" [{right['low']:.1%}, {right['high']:.1%}]"
        accuracy = f"accuracy {right['value']:.1%}{interval}"
    decisions = f"{number:,} decision{'s' * (number != 1)}"
    return (
        "<p>Attention gives every word a weight, and it is tempting to read the largest weights as the reason for a "
        "model's output. This page tests whether they are, each test beside a control.</p>"
        f"<p>Model: <b>{escape(facts['model'])}</b>. Decision: {escape(facts['decision'])}. "
        f"{decisions}, {accuracy}.</p>"
        f"<p><small>{escape(_settings_line(facts['settings']))}</small></p>"
    )


def _settings_line(settings: Any) -> str:
    search, sizes = settings["search"], ", ".join(f"{size:.0%}" for size in settings["rationale_sizes"])
    return (
        f"Settings: places {' '.join(settings['places'])}; {settings['permutations']} permutations; adversarial "
        f"attention from {search['starts']} starts with {search['steps']} steps, output change at most "
        f"{search['tolerance']:.0%}; {settings['random_orders']} random maps; rationales of {sizes} of the words; seed "
        f"{settings['seed']}. Brackets and lines are {settings['confidence']:.0%} confidence intervals."
    )


def _navigation(report: Findings, examples: str) -> str:
    names = {"verdicts": "verdicts"} | {one.name: one.nav_label for one in present_sections(report)}
    names |= {"decisions": "single decisions"} if examples else {}
    links = (f'<a href="#{name}">{label}</a>' for name, label in (names | {"numbers": "all numbers"}).items())
    return f"<nav>{' · '.join(links)}</nav>"


def _interval_note(facts: Any) -> str:
    settings = facts["settings"]
    return (
        f"<p><small>Brackets are {settings['confidence']:.0%} bootstrap confidence intervals of the mean, from "
        f"{settings['bootstrap_samples']:,} resamples of whole examples; with fewer than three examples there is none. "
        "Among many maps some intervals miss the true mean by chance: one in twenty at 95%.</small></p>"
    )
