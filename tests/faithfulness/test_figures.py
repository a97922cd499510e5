"""Figures of the report: valid, deterministic SVG with every map, in the colours of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import pytest

from faithfulness import reports
from regard.faithfulness.pages import figures
from regard.faithfulness.pages.figures import (
    VARIABLES,
    Panel,
    draw_adversary,
    draw_erasure,
    draw_means,
    draw_permutation,
    pick_layers,
)
from regard.faithfulness.report import Report

LAYERS = ["enc.0.self", "enc.1.self"]
SVG = "{http://www.w3.org/2000/svg}"


def means(report: Report, layers: list[str]) -> str:
    return draw_means(report, [*layers, "rollout", "random"], [Panel("tau_gradient"), Panel("precision")], "means")


FIGURES = [means, draw_permutation, draw_adversary, draw_erasure]
Draw = Callable[[Report, list[str]], str]


@cache
def once(draw: Draw) -> str:
    return draw(reports.made(), LAYERS)


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("draw", FIGURES)
def test_the_same_bytes_twice(draw: Draw) -> None:
    assert draw(reports.made(), LAYERS) == once(draw)


@pytest.mark.parametrize("draw", FIGURES)
def test_every_layer_is_named_as_text(draw: Draw) -> None:
    svg = once(draw)
    assert set(LAYERS) <= set(texts(svg))
    assert ElementTree.fromstring(svg).get("aria-label")


@pytest.mark.parametrize("draw", FIGURES)
def test_colours_are_those_of_the_page(draw: Draw) -> None:
    svg = once(draw)
    assert not any(colour in svg for colour in VARIABLES)
    left = re.sub(r"var\(--\w+, #[0-9a-f]{6}\)", "", svg)
    assert re.findall(r"#[0-9a-f]{6};", left) == []  # nothing is black, or white, on its own


@pytest.mark.parametrize("draw", FIGURES)
def test_every_id_is_unique_and_referenced_ids_exist(draw: Draw) -> None:
    svg = once(draw)
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(ids)


def test_figures_share_no_ids() -> None:
    ids = [re.findall(r'\bid="([^"]+)"', once(draw)) for draw in FIGURES]
    flat = [one for some in ids for one in some]
    assert len(flat) == len(set(flat))


@pytest.mark.parametrize("draw", FIGURES)
def test_names_are_never_formulas_or_markup(draw: Draw) -> None:
    plain = reports.made()
    name = "enc.<b>$x_1$.self"
    report = Report(
        plain.facts,
        [replace(one, map=one.map.replace("enc.1.self", name)) for one in plain.findings],
        [],
        [
            {**one, "maps": {key.replace("enc.1.self", name): x for key, x in one["maps"].items()}}
            for one in plain.examples
        ],
    )
    assert name in texts(draw(report, ["enc.0.self", name]))


def test_a_band_marks_random_maps_where_they_were_measured() -> None:
    report = reports.made()
    assert "var(--band" in draw_means(report, LAYERS, [Panel("tau_gradient")], "a")
    assert "var(--band" not in draw_means(report, LAYERS, [Panel("class_sensitivity")], "a")


def test_decisions_are_thinned_out_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    report = reports.made(12)
    points = draw_permutation(report, LAYERS).count("<use")
    monkeypatch.setattr(figures, "MAX_POINTS", 24)
    fewer = draw_permutation(report, LAYERS)
    assert points - fewer.count("<use") == 4 * (12 - 6)  # two layers, exchanged and even weights
    assert "largest weight (6 of 12 decisions drawn)" in texts(fewer)


def test_the_bound_is_marked() -> None:
    assert {"0", "0.35", "ln 2"} <= set(texts(draw_adversary(reports.made(3), LAYERS)))


def test_an_estimate_without_an_interval_is_a_point() -> None:
    report = reports.made(2)
    assert report.estimates("enc.0.self")["tau_gradient"].low is None
    assert set(LAYERS) <= set(texts(means(report, LAYERS)))


def test_of_many_layers_some_are_drawn() -> None:
    assert pick_layers(LAYERS) == LAYERS
    many = [str(number) for number in range(48)]
    some = pick_layers(many)
    assert len(some) == figures.MAX_PANELS == len(set(some)) and some[0] == "0" and some[-1] == "47"
    assert some == sorted(some, key=int)
