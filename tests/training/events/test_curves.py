"""Curves: what a run's log says about a quantity, against steps, tokens and seconds."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import RunError, SettingError
from regard.training.events.curves import curve_values, panel_names, read_runs, smoothed
from regard.training.events.event import Evaluated, Started
from training.events.runs import a_run, trained, write_run

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def test_a_run_is_a_folder_or_its_log(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "first")
    by_folder, by_log = read_runs([folder]) + read_runs([folder / "log.jsonl"])
    assert by_folder.name == by_log.name == "first"
    assert by_folder.entries == by_log.entries
    copied = tmp_path / "other.jsonl"
    copied.write_bytes((folder / "log.jsonl").read_bytes())
    assert read_runs([copied])[0].name == "other"


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    first, second, third = (a_run(tmp_path / name) for name in ("a/run", "b/run", "c"))
    assert [run.name for run in read_runs([first, second, third])] == [str(first), str(second), "c"]
    assert len(read_runs([first, first])) == 1


def test_the_folder_one_stands_in_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(a_run(tmp_path / "here"))
    assert read_runs([Path(".")])[0].name == "here"


def test_no_run_there_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere\. Pass the folder of a run"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(RunError, match=r"has no log\.jsonl"):
        read_runs([tmp_path])


def test_what_there_is_to_draw(tmp_path: Path) -> None:
    full, bare = a_run(tmp_path / "full"), write_run(tmp_path / "bare", [Started(0, 9), trained(1, 2.0)])
    only = write_run(tmp_path / "only", [Started(0, 9), Evaluated(1, {"f1": 0.5, "loss": 1.0}, True)])
    assert panel_names(read_runs([full])) == ("loss", "perplexity", "bleu", "learning_rate")
    assert panel_names(read_runs([bare])) == ("loss", "learning_rate")
    assert panel_names(read_runs([only])) == ("loss", "f1")
    assert panel_names(read_runs([bare, only, full])) == ("loss", "f1", "perplexity", "bleu", "learning_rate")
    assert panel_names(read_runs([full]), ["gradient_norm", "bleu", "gradient_norm"]) == ("gradient_norm", "bleu")


def test_an_unknown_metric_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"Unknown metric 'blue'. Did you mean 'bleu'. Known: bleu, gradient_norm"):
        panel_names(read_runs([a_run(tmp_path)]), ["loss", "blue"])


def test_a_run_that_has_only_started_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="young has no training step and no evaluation"):
        panel_names(read_runs([write_run(tmp_path / "young", [Started(0, 9)])]))


def test_curves_against_tokens_and_seconds(tmp_path: Path) -> None:
    """An evaluation between two entries of training lies between them."""
    events = [trained(10, 3.0), Evaluated(15, {"loss": 2.5}, True), trained(20, 2.0), Evaluated(30, {"loss": 2}, False)]
    (run,) = read_runs([write_run(tmp_path, events)])
    assert run.trained("loss").x.tolist() == [10, 20]
    assert run.evaluated("loss").x.tolist() == [15, 30]
    assert run.evaluated("loss").y.tolist() == [2.5, 2]
    assert run.trained("loss", "tokens").x.tolist() == [1000, 2000]
    assert run.evaluated("loss", "tokens").x.tolist() == [1500, 2000]  # no later place is known
    assert run.evaluated("loss", "seconds").x.tolist() == [30, 40]
    assert run.trained("bleu").x.size == run.evaluated("bleu").x.size == 0
    with pytest.raises(SettingError, match=r"Unknown axis 'time'\. Known: seconds, step, tokens"):
        run.trained("loss", "time")


def test_tokens_of_a_log_that_does_not_tell_them(tmp_path: Path) -> None:
    (run,) = read_runs([write_run(tmp_path, [Evaluated(1, {"loss": 1.0}, True)])])
    assert run.evaluated("loss").y.tolist() == [1]
    with pytest.raises(SettingError, match="no training step, so its tokens are unknown"):
        run.evaluated("loss", "tokens")


def test_the_best_evaluation_is_the_last_that_was_better(tmp_path: Path) -> None:
    run, young = read_runs([a_run(tmp_path / "a"), write_run(tmp_path / "b", [Started(0, 9)])])
    assert run.best is not None and run.best["step"] == 30
    assert (run.steps, young.best, young.steps) == (40, None, 0)


def test_numbers_are_what_is_drawn(tmp_path: Path) -> None:
    (run,) = read_runs([a_run(tmp_path, steps=10)])
    told = curve_values(run, ["bleu", "learning_rate"], "tokens")
    assert told == {
        "train": {"learning_rate": {"tokens": [500, 1000], "value": [0.005, 0.01]}},
        "valid": {"bleu": {"tokens": [1000], "value": [10]}},
    }


@given(VALUES, st.floats(0, 0.99))
def test_smoothing_stays_between_the_values_and_starts_at_the_first(values: list[float], share: float) -> None:
    means = smoothed(np.array(values), share)
    assert means[0] == pytest.approx(values[0])
    slack = 1e-9 * max(map(abs, values))
    assert min(values) - slack <= means.min() <= means.max() <= max(values) + slack


@given(VALUES)
def test_no_smoothing_changes_nothing(values: list[float]) -> None:
    assert smoothed(np.array(values), 0).tolist() == values


def test_smoothing_by_hand() -> None:
    """The weights of the values are 1/2, 1/4, 1/8 from the last to the first, divided by their sum."""
    means = smoothed(np.array([4.0, 1.0, math.nan, math.inf, 2.0]), 0.5)
    assert means[[0, 1]].tolist() == [4, 2]
    assert np.isnan(means[[2, 3]]).all()
    assert means[4] == pytest.approx((0.125 * 4 + 0.25 * 1 + 0.5 * 2) / 0.875)


@pytest.mark.parametrize("share", [-0.1, 1, math.nan])
def test_impossible_smoothing_is_refused(share: float) -> None:
    with pytest.raises(SettingError, match="expected at least 0 and less than 1"):
        smoothed(np.zeros(2), share)
