"""The page of an audit: whole, escaped, alone; with every verdict and number, without tests that were not made."""

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
from regard.faithfulness.pages.glossary import SIGNS, TESTS, called, short, told
from regard.faithfulness.pages.page import page
from regard.faithfulness.pages.sections import SECTIONS, Section, made
from regard.faithfulness.pages.tables import headline
from regard.faithfulness.report import Report

VOID = {"meta", "br", "wbr"}


class Read(HTMLParser):
    """Reads a page: its text, what it links to, and whether every element ends where it should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
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
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def all(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@cache
def whole() -> str:
    return page(reports.made())


@cache
def read() -> Read:
    return Read(whole())


def test_elements_end_where_they_should_and_ids_are_given_once() -> None:
    assert read().open == []
    ids = read().all("id")
    assert len(ids) == len(set(ids))
    inside = [link.removeprefix("#") for link in read().all("href") if link.startswith("#")]
    assert inside and set(inside) <= set(ids)


def test_the_same_bytes_twice() -> None:
    assert page(reports.made()) == whole()


def test_nothing_that_was_read_is_taken_for_html() -> None:
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


def test_every_verdict_is_in_it_with_a_sign_and_a_word() -> None:
    report = reports.made()
    assert {one.kind for one in report.verdicts} == {"head", "layer", "method"}
    for one in report.verdicts:
        assert escape(one.words) in whole()
        assert f">{SIGNS[one.status]}</span>" in whole()
    assert len(re.findall(r'<article class="verdict', whole())) == len(report.verdicts)


def test_the_grid_leads_to_the_verdict_of_each_head() -> None:
    numbers = {f"verdict-{n}": one for n, one in enumerate(reports.made().verdicts)}
    cells = re.findall(r'<td class="\w+"><a href="#([\w-]+)" title="([^"]*)"[^>]*>(.)</a>', whole())
    assert len(cells) == 4
    for anchor, title, sign in cells:
        one = numbers[anchor]
        place, head = one.map.split("/")
        assert title == f"{place}, head {head}: {BADGES[one.status]}" and sign == SIGNS[one.status]


def test_every_number_is_in_it() -> None:
    report = reports.made()
    table = whole()[whole().index('<section id="numbers">') :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="number">(.*?)</td>', table)
    assert sorted(rows) == sorted(
        (TESTS[one.test].label, told(one.test, one.estimate.value)) for one in report.findings
    )


def test_every_test_of_an_audit_has_a_name_and_a_section_or_is_part_of_one() -> None:
    made = {one.test for one in reports.made().findings}
    assert made <= set(TESTS)
    assert made <= {test for section in SECTIONS for test in section.tests}


def test_every_test_that_was_made_has_a_section() -> None:
    for section in SECTIONS:
        assert f'<section id="{section.name}">' in whole() and f'href="#{section.name}"' in whole()
        assert escape(section.title) in whole() and escape(section.paper) in whole()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.name)
def test_a_test_that_was_not_made_has_no_section(section: Section) -> None:
    alone = page(reports.only(reports.made(3), *section.tests))
    for one in SECTIONS:
        assert (f'<section id="{one.name}">' in alone) == (one is section)
        assert (f'href="#{one.name}"' in alone) == (one is section)


def test_without_truth_or_maps_there_is_neither_planted_truth_nor_an_example() -> None:
    report = reports.made(3, truth=False, shown=False)
    assert "planted" not in [one.name for one in made(report)]
    left = page(reports.only(report))
    assert 'id="decisions"' not in left and 'href="#decisions"' not in left and "<mark" not in left
    assert 'id="decisions"' in whole() and 'href="#decisions"' in whole()


def test_planted_truth_is_ranked_by_precision() -> None:
    report, figure = reports.made(), re.search(r'<section id="planted">.*?</svg>', whole(), re.DOTALL)
    values = {name: report.of(one)["precision"].value for one, name in called(report).items() if one != "gradient"}
    assert figure is not None
    names = [name for name in re.findall(r">([^<>]+)</text>", figure[0]) if name in values]
    assert sorted(names) == ["enc.0.self", "enc.1.self", "random (control)", "rollout"]
    assert names == sorted(names, key=lambda name: -values[name])


def test_who_decides_what_and_how_often_rightly() -> None:
    assert "12 decisions, right in 75.0% [" in read().text
    facts = {**reports.made().facts, "accuracy": None, "decisions": 1}
    assert (
        "1 decision, not known which are right" in Read(page(replace(reports.only(reports.made(3)), facts=facts))).text
    )


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["explains"], "The attention of this model explains what it decides."),
        (["does not explain"] * 3, "None of the 3 layers explains what the model decides."),
        (["explains", "points", "points"], "Of 3 layers, 1 explains what the model decides and 2 point at words"),
        ([], "No layer was put to the tests."),
    ],
)
def test_the_headline_counts_layers(statuses: list[Status], words: str) -> None:
    verdicts = [Verdict(f"layer.{n}", "layer", status, "") for n, status in enumerate(statuses)]
    assert headline(Report({}, [], [*verdicts, Verdict("rollout", "method", "points", "")], [])).startswith(words)


def test_words_are_shaded_by_what_a_map_gives_them() -> None:
    marks = re.findall(r'<mark( class="against")? style="--w:([\d.]+)" title="([^"]*)">(.*?)</mark>', whole())
    assert ("", "1.00", "0.7", "good") in marks and ("", "0.29", "0.2", "not") in marks  # of a layer
    assert (' class="against"', "0.50", "-0.5", "not") in marks  # of a method
    assert all(0 <= float(weight) <= 1 for _, weight, _, _ in marks)


def test_examples_are_the_best_the_worst_and_the_surest_mistake() -> None:
    known = [reports.decision(number) for number in range(6)]
    known[4] |= {"p": 0.99, "right": False}
    known[2]["maps"]["enc.1.self"]["comprehensiveness"] = 0.9
    known[3]["maps"]["enc.1.self"]["comprehensiveness"] = -0.2
    picked = parts._picked(known, "enc.1.self")
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
def test_tokens_are_read_as_text(tokens: list[str], text: str) -> None:
    assert "".join(gap + token for gap, token in parts._spelled(tokens)) == text


def test_long_texts_are_cut_with_a_word() -> None:
    one = reports.decision(1) | {"tokens": ["a"] * 500, "shown": {"enc.0.self": [0.1] * 500}}
    line = parts._line("enc.0.self", "enc.0.self", one)
    assert line.count("<mark") == parts.TOKENS and f"{500 - parts.TOKENS} more" in line


def test_numbers_are_told_as_their_tests_have_them() -> None:
    assert (
        told("permuted", 0.123) == "12.3%" and told("points", 0.05) == "+5.0%" and told("tau gradient", -0.5) == "-0.50"
    )
    assert told("tau gradient", -0.004) == "0.00" and told("no such test", 0.5) == "0.50"


def test_places_are_called_as_shortly_as_they_differ() -> None:
    assert short(["a.b.blocks.0.self", "a.b.blocks.1.self"]) == {
        "a.b.blocks.0.self": "blocks.0.self",
        "a.b.blocks.1.self": "blocks.1.self",
    }
    assert short(["pooling"]) == {"pooling": "pooling"}
    assert short(["a.cross", "b.self"]) == {"a.cross": "a.cross", "b.self": "b.self"}
    assert short(["a", "a.b"]) == {"a": "a", "a.b": "a.b"}


def test_too_few_examples_are_said_to_be_too_few() -> None:
    left = page(reports.only(reports.made(2)))
    assert "There are too few examples" in left and "Too few examples to say anything." in left
