"""The figure of learning curves: what it says in words, its bytes, and what it does with odd runs."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from regard.errors import SettingError
from regard.training.events.curves import Curve, read_runs
from regard.training.events.event import Started
from regard.training.events.plot_curves import COLOURS, POINTS, downsample, draw_curves, short
from training.events.runs import a_run, trained, write_run


def words(path: Path) -> list[str]:
    return [text.strip() for text in ElementTree.parse(path).getroot().itertext() if text.strip()]


def drawn(tmp_path: Path, *folders: Path, **settings: object) -> list[str]:
    return words(draw_curves(read_runs(folders), tmp_path / "figure.svg", **settings))  # type: ignore[arg-type]


def test_the_figure_says_what_it_shows(tmp_path: Path) -> None:
    said = drawn(tmp_path, a_run(tmp_path / "first"), a_run(tmp_path / "second", height=2))
    for word in ("first", "second", "loss", "perplexity", "bleu", "learning rate", "step", "training", "evaluation"):
        assert word in said
    assert "4.133" in said  # the best loss of the first: 4 / 30 + 4
    assert said.count("30") >= 2  # the BLEU of both at that evaluation


def test_runs_have_colours_of_their_own(tmp_path: Path) -> None:
    figure = draw_curves(read_runs([a_run(tmp_path / name) for name in "abc"]), tmp_path / "figure.svg")
    text = figure.read_text().lower()
    assert all(colour.lower() in text for colour in COLOURS[:3])
    assert not any(colour.lower() in text for colour in COLOURS[3:6])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_the_same_logs_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    runs = read_runs([a_run(tmp_path / "run")])
    first, second = (draw_curves(runs, tmp_path / f"{name}{suffix}").read_bytes() for name in ("first", "second"))
    assert first == second
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix.lower()])


@pytest.mark.parametrize("name", ["curves.gif", "curves"])
def test_another_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match=r"Known: \.pdf, \.png, \.svg"):
        draw_curves(read_runs([a_run(tmp_path / "run")]), tmp_path / name)


def test_only_what_is_wanted(tmp_path: Path) -> None:
    said = drawn(tmp_path, a_run(tmp_path / "run"), wanted=["bleu"])
    assert "bleu" in said
    assert not {"loss", "perplexity", "learning rate", "training"} & set(said)


def test_without_an_evaluation_training_is_drawn(tmp_path: Path) -> None:
    said = drawn(tmp_path, write_run(tmp_path / "run", [trained(1, 3.0), trained(2, 2.0)]))
    assert {"loss", "learning rate", "training"} <= set(said)
    assert not {"evaluation", "best evaluation"} & set(said)


def test_a_single_point_is_seen(tmp_path: Path) -> None:
    once, twice = ([trained(step, 3.0) for step in range(1, last)] for last in (2, 3))
    uses = []
    for name, events in (("once", once), ("twice", twice)):
        draw_curves(read_runs([write_run(tmp_path / name, events)]), tmp_path / f"{name}.svg", ["loss"])
        uses.append((tmp_path / f"{name}.svg").read_text().count(f"fill: {COLOURS[0].lower()}"))
    assert uses[0] > uses[1] == 0  # dots are filled, lines are not


def test_values_that_are_not_finite_are_gaps(tmp_path: Path) -> None:
    losses = [3.0, math.nan, math.inf, 2.0, -math.inf]
    run = write_run(tmp_path / "run", [trained(step, loss) for step, loss in enumerate(losses, start=1)])
    assert "loss" in drawn(tmp_path, run)
    nothing = write_run(tmp_path / "nothing", [trained(1, math.nan)])
    assert "loss" in drawn(tmp_path, nothing)


def test_a_young_run_beside_an_old_one(tmp_path: Path) -> None:
    said = drawn(tmp_path, a_run(tmp_path / "old"), write_run(tmp_path / "young", [Started(0, 9)]))
    assert {"old", "young"} <= set(said)


def test_a_loss_that_falls_far_is_drawn_by_its_logarithm(tmp_path: Path) -> None:
    far = write_run(tmp_path / "far", [trained(step, 100 / step**2) for step in range(1, 11)])
    near = write_run(tmp_path / "near", [trained(step, 10 / step) for step in range(1, 11)])
    assert {"1", "10", "100", "50"} <= set(drawn(tmp_path, far, wanted=["loss"], smoothing=0.0))
    assert "50" not in drawn(tmp_path, near, wanted=["loss"], smoothing=0.0)


@pytest.mark.parametrize(("steps", "label"), [(50, "seconds"), (70, "minutes"), (3700, "hours"), (90_000, "days")])
def test_time_in_the_unit_it_took(tmp_path: Path, steps: int, label: str) -> None:
    """Two seconds a step."""
    run = write_run(tmp_path / "run", [trained(1, 3.0), trained(steps, 2.0)])
    said = drawn(tmp_path, run, x_axis="seconds", wanted=["loss"])
    assert label in said
    assert "2" in said or "2.0" in said


def test_a_name_is_shown_as_it_is(tmp_path: Path) -> None:
    odd = ["_hidden", "a$b$c", "x&y<z>", "é-ü"]
    assert set(odd) <= set(drawn(tmp_path, *(a_run(tmp_path / name) for name in odd)))


def test_tokens_are_short(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trained(step, 3.0) for step in (1, 20_000)])
    assert {"tokens", "0", "1M", "2M"} <= set(drawn(tmp_path, run, x_axis="tokens", wanted=["loss"]))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1.2e6, "1.2M"), (-2.5e9, "-2.5G"), (0.1 + 0.2, "0.3"), (1e-5, "1e-05")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_a_long_curve_keeps_its_spikes() -> None:
    y = np.sin(np.arange(1_000_000) / 1e5)
    y[[123_456, 765_432]] = 50, -50
    thin = downsample(Curve(np.arange(1_000_000.0), y))
    assert len(thin.x) <= POINTS
    assert (thin.y[thin.x == 123_456], thin.y[thin.x == 765_432]) == (50, -50)
    assert (np.diff(thin.x) > 0).all()
    assert np.array_equal(thin.y, y[thin.x.astype(int)])


def test_a_place_nobody_can_write_to_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SettingError, match="Could not write the figure"):
        draw_curves(read_runs([a_run(tmp_path / "run")]), tmp_path / "taken" / "curves.png")
