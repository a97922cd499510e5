"""The report page: valid, escaped and offline, with every verdict and number, and only tests that were run."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from html import escape
from html.parser import HTMLParser

import pytest

from faithfulness import reports
from regard.faithfulness.findings import BADGES, Status, Verdict
from regard.faithfulness.pages import decisions as parts
from regard.faithfulness.pages.glossary import STATUS_SYMBOLS, TESTS, display_names, format_value, shorten_places
from regard.faithfulness.pages.report_page import render_report
from regard.faithfulness.pages.sections import SECTIONS, ReportSection, present_sections
from regard.faithfulness.pages.tables import write_headline
from regard.faithfulness.report import Report

VOID = {"meta", "br", "wbr"}


class Read(HTMLParser):
    """Parses a page: its text, its attributes, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.reason: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.reason.append(data)

    @property
    def text(self) -> str:
        return "".join(self.reason)

    def all(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@cache
def whole() -> str:
    return render_report(reports.made())


@cache
def read() -> Read:
    return Read(whole())


def test_elements_are_closed_and_ids_are_unique() -> None:
    assert read().open == []
    ids = read().all("id")
    assert len(ids) == len(set(ids))
    inside = [link.removeprefix("#") for link in read().all("href") if link.startswith("#")]
    assert inside and set(inside) <= set(ids)


def test_the_same_bytes_twice() -> None:
    assert render_report(reports.made()) == whole()


def test_text_is_never_markup() -> None:
    assert reports.NASTY not in whole() and "<b>positive" not in whole()
    assert escape(reports.NASTY) in whole() and escape("<b>positive") in whole()
    assert [tag for tag, _ in read().tags].count("script") == 1


def test_nothing_is_loaded_and_one_script_may_run() -> None:
    assert all(link.startswith("#") for link in [*read().all("href"), *read().all("xlink:href")])
    assert read().all("src") == [] and not re.search(r"@import|url\((?!#)", whole())
    left = re.sub(r'xmlns(:xlink)?="[^"]*"', "", whole())
    assert not re.search(r"https?://", left)
    (policy,) = (one["content"] for _, one in read().tags if one.get("http-equiv") == "Content-Security-Policy")
    script = re.findall(r"<script>(.*?)</script>", whole(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy is not None and "default-src 'none'" in policy and f"script-src 'sha256-{digest}'" in policy


def test_every_verdict_has_a_symbol_and_a_reason() -> None:
    report = reports.made()
    assert {one.kind for one in report.verdicts} == {"head", "layer", "method"}
    for one in report.verdicts:
        assert escape(one.reason) in whole()
        assert f">{STATUS_SYMBOLS[one.status]}</span>" in whole()
    assert len(re.findall(r'<article class="verdict', whole())) == len(report.verdicts)


def test_the_grid_links_the_verdict_of_each_head() -> None:
    numbers = {f"verdict-{n}": one for n, one in enumerate(reports.made().verdicts)}
    cells = re.findall(r'<td class="\w+"><a href="#([\w-]+)" title="([^"]*)"[^>]*>(.)</a>', whole())
    assert len(cells) == 4
    for anchor, title, sign in cells:
        one = numbers[anchor]
        place, head = one.map.split("/")
        assert title == f"{place}, head {head}: {BADGES[one.status]}" and sign == STATUS_SYMBOLS[one.status]


def test_every_number_is_in_the_table() -> None:
    report = reports.made()
    table = whole()[whole().index('<section id="numbers">') :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="number">(.*?)</td>', table)
    assert sorted(rows) == sorted(
        (TESTS[one.test].label, format_value(one.test, one.estimate.value)) for one in report.findings
    )


def test_every_test_of_an_audit_is_in_the_glossary_and_in_a_section() -> None:
    made = {one.test for one in reports.made().findings}
    assert made <= set(TESTS)
    assert made <= {test for section in SECTIONS for test in section.tests}


def test_every_test_that_was_run_has_a_section() -> None:
    for section in SECTIONS:
        assert f'<section id="{section.name}">' in whole() and f'href="#{section.name}"' in whole()
        assert escape(section.title) in whole() and escape(section.paper) in whole()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.name)
def test_a_test_that_was_not_run_has_no_section(section: ReportSection) -> None:
    alone = render_report(reports.only(reports.made(3), *section.tests))
    for one in SECTIONS:
        assert (f'<section id="{one.name}">' in alone) == (one is section)
        assert (f'href="#{one.name}"' in alone) == (one is section)


def test_without_evidence_or_maps_there_is_no_ground_truth_and_no_example() -> None:
    report = reports.made(3, truth=False, shown=False)
    assert "ground-truth" not in [one.name for one in present_sections(report)]
    left = render_report(reports.only(report))
    assert 'id="decisions"' not in left and 'href="#decisions"' not in left and "<mark" not in left
    assert 'id="decisions"' in whole() and 'href="#decisions"' in whole()


def test_ground_truth_is_ranked_by_precision() -> None:
    report, figure = reports.made(), re.search(r'<section id="ground-truth">.*?</svg>', whole(), re.DOTALL)
    values = {
        name: report.estimates(one)["precision"].value
        for one, name in display_names(report).items()
        if one != "gradient"
    }
    assert figure is not None
    names = [name for name in re.findall(r">([^<>]+)</text>", figure[0]) if name in values]
    assert sorted(names) == ["enc.0.self", "enc.1.self", "random (control)", "rollout"]
    assert names == sorted(names, key=lambda name: -values[name])


def test_the_accuracy_is_stated() -> None:
    assert "12 decisions, accuracy 75.0% [" in read().text
    facts = {**reports.made().facts, "accuracy": None, "decisions": 1}
    assert (
        "1 decision, accuracy unknown" in Read(render_report(replace(reports.only(reports.made(3)), facts=facts))).text
    )


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["explains"], "The attention of this model explains its decisions."),
        (["does not explain"] * 3, "None of the 3 layers explains the model's decisions."),
        (
            ["explains", "informative", "informative"],
            "Of 3 layers, 1 explains the model's decisions and 2 are informative",
        ),
        ([], "No layer was tested."),
    ],
)
def test_the_headline_counts_layers(statuses: list[Status], words: str) -> None:
    verdicts = [Verdict(f"layer.{n}", "layer", status, "") for n, status in enumerate(statuses)]
    assert write_headline(Report({}, [], [*verdicts, Verdict("rollout", "method", "informative", "")], [])).startswith(
        words
    )


def test_words_are_shaded_by_their_scores() -> None:
    marks = re.findall(r'<mark( class="against")? style="--w:([\d.]+)" title="([^"]*)">(.*?)</mark>', whole())
    assert ("", "1.00", "0.7", "good") in marks and ("", "0.29", "0.2", "not") in marks  # of a layer
    assert (' class="against"', "0.50", "-0.5", "not") in marks  # of a method
    assert all(0 <= float(weight) <= 1 for _, weight, _, _ in marks)


def test_examples_are_the_best_the_worst_and_the_most_confident_error() -> None:
    known = [reports.decision(number) for number in range(6)]
    known[4] |= {"p": 0.99, "correct": False}
    known[2]["maps"]["enc.1.self"]["comprehensiveness"] = 0.9
    known[3]["maps"]["enc.1.self"]["comprehensiveness"] = -0.2
    picked = parts._pick_decisions(known, "enc.1.self")
    assert [one["number"] for _, one in picked] == [2, 3, 4]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["[CLS]", "▁We", "▁were", "n't", "[SEP]"], " [CLS] We weren't [SEP]"),
        (["Hello", "Ġwor", "ld"], "Hello world"),
        (["straw", "##berries", "are", "red"], " strawberries are red"),
        (["plain", "words"], " plain words"),
    ],
)
def test_tokens_are_joined_to_text(tokens: list[str], text: str) -> None:
    assert "".join(gap + token for gap, token in parts._split_spaces(tokens)) == text


def test_long_texts_are_truncated() -> None:
    one = reports.decision(1) | {"tokens": ["a"] * 500, "attributions": {"enc.0.self": [0.1] * 500}}
    line = parts._shaded_line("enc.0.self", "enc.0.self", one)
    assert line.count("<mark") == parts.MAX_TOKENS and f"{500 - parts.MAX_TOKENS} more" in line


def test_numbers_are_formatted_by_test() -> None:
    assert (
        format_value("permuted", 0.123) == "12.3%"
        and format_value("comprehensiveness_gain", 0.05) == "+5.0%"
        and format_value("tau_gradient", -0.5) == "-0.50"
    )
    assert format_value("tau_gradient", -0.004) == "0.00" and format_value("no such test", 0.5) == "0.50"


def test_places_lose_their_common_prefix() -> None:
    assert shorten_places(["a.b.blocks.0.self", "a.b.blocks.1.self"]) == {
        "a.b.blocks.0.self": "blocks.0.self",
        "a.b.blocks.1.self": "blocks.1.self",
    }
    assert shorten_places(["pooling"]) == {"pooling": "pooling"}
    assert shorten_places(["a.cross", "b.self"]) == {"a.cross": "a.cross", "b.self": "b.self"}
    assert shorten_places(["a", "a.b"]) == {"a": "a", "a.b": "a.b"}


def test_too_few_examples_are_stated() -> None:
    left = render_report(reports.only(reports.made(2)))
    assert "There are too few examples" in left and "Too few examples for a verdict." in left
