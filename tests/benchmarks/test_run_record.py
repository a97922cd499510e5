"""A benchmark's JSON says where, from which commit and with which seeds its figures come, and how far rounds differ."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmark import FOLDER, benchmark

record = benchmark("run_record")
H200 = sorted(path.stem for path in (FOLDER / "h200").glob("*.py"))


def test_the_record_has_the_machine_the_commit_and_the_seeds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REGARD_COMMIT", "abc123")
    found = record.run_record("numpy", "no-such-package", seeds=[0, 1], rounds=3)
    assert {"cpu", "cores", "python", "torch", "numpy", "date", "command"} <= found.keys()
    assert (found["commit"], found["seeds"], found["rounds"]) == ("abc123", [0, 1], 3)
    assert found["numpy"] and found["no-such-package"] is None


def test_the_commit_is_gits_or_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REGARD_COMMIT", raising=False)
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", record.commit())
    monkeypatch.setenv("PATH", "")
    assert record.commit() == "unknown"


def test_the_spread_is_of_the_rounds():
    assert record.spread([4.0]) == {"median": 4.0, "quartiles": [4.0, 4.0], "rounds": [4.0]}
    found = record.spread([5.0, 1.0, 3.0, 2.0, 4.0])
    assert found["median"] == 3.0 and found["quartiles"] == [1.5, 4.5]
    assert record.shown(found, ".1f") == "3.0 (1.5 to 4.5)"


def test_ratios_are_taken_within_a_round():
    slow_second_round = record.ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    assert slow_second_round["quartiles"] == [2.0, 2.0]
    with pytest.raises(ValueError):
        record.ratios([1.0, 2.0], [1.0])


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch):
    """Loads a script of the GPU as its command finds its neighbours, without a GPU."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER / "h200")])
    monkeypatch.setattr(sys, "argv", ["script"])
    monkeypatch.setitem(sys.modules, "timing", None)
    del sys.modules["timing"]
    return lambda name: benchmark(f"h200/{name}")


def test_ways_take_turns_and_ratios_go_by_round(h200):
    timing = h200("timing")
    calls: list[str] = []
    ways = {"base": lambda: calls.append("base"), "other": lambda: calls.append("other")}
    clock = iter([1.0, 2.0, 10.0, 20.0]).__next__

    def timed(work):
        work()
        return clock()

    times = timing.in_turns(ways, timed, rounds=2)
    assert calls[4:] == ["base", "other"] * 2
    assert times == {"base": [1.0, 10.0], "other": [2.0, 20.0]}
    found = timing.against(times, "base")
    assert found["other"] == {"ms": 11.0, "ratio": 2.0, "quartiles": [2.0, 2.0], "rounds": [2.0, 20.0]}
    assert timing.with_quartiles(found["other"]) == "2.00 (2.00 to 2.00)"


def test_both_clocks_tell_the_same_ways(h200):
    clocks = h200("timing").both_clocks({"a": lambda: None, "b": lambda: None}, "a", rounds=3, least_ms=0.01)
    assert clocks.keys() == {"wall", "device"}
    assert all(list(ways) == ["a", "b"] and len(ways["b"]["rounds"]) == 3 for ways in clocks.values())


@pytest.mark.parametrize("name", H200)
def test_scripts_of_the_gpu_load_without_one(h200, name: str):
    if "triton" in (FOLDER / "h200" / f"{name}.py").read_text("utf-8"):
        pytest.importorskip("triton")
    pytest.importorskip("transformers")
    assert h200(name).__doc__


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.py")), ids=lambda path: path.stem)
def test_what_keeps_figures_keeps_the_record_of_its_run(path: Path):
    text = path.read_text("utf-8")
    if "json.dumps(" in text and "write_text(" in text:
        assert re.search(r"\b(run_record|machine)\(|\bshow\(run", text), f"{path.name} writes figures without a record"


def test_buckets_hold_every_sentence_once_and_pad_little():
    recurrent = benchmark("recurrent")
    pairs = [(" ".join("a" * (1 + i % 30)), " ".join("b" * (2 + i % 30))) for i in range(1000)]
    grouped = recurrent.buckets(pairs, 64)
    assert sorted(pair for group in grouped for pair in group) == sorted(pairs)
    assert {len(group) for group in grouped[:-1]} == {64} and len(grouped[-1]) == 1000 % 64
    plain = [pairs[start : start + 64] for start in range(0, 1000, 64)]
    assert recurrent.padding_of([[("a b c", "a"), ("a", "a b c")]]) == {"source": 0.25, "target": 0.25}
    assert recurrent.padding_of(grouped)["source"] < 0.2 < recurrent.padding_of(plain)["source"]
