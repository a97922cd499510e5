"""The log: what is written is what is read, whatever happened to the process in between."""

import json
import math
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.errors import DtypeError, RunError
from regard.training.events.event import Ended, Evaluated, Event, Resumed, Saved, Skipped, Started, Trained
from regard.training.events.log import LogFile, read_log, series
from regard.training.objectives.base import ExampleOutput

WORDS = st.text(max_size=6) | st.sampled_from(["nan", "inf", "-inf", "a\nb", "\u2028", '"'])
METRICS = st.dictionaries(WORDS, st.floats(), max_size=3)
COUNTS = st.integers(0, 2**60)
OUTPUTS = st.builds(ExampleOutput, COUNTS, WORDS, WORDS, st.none() | WORDS)
EVENTS = st.one_of(
    st.builds(Trained, *[COUNTS] * 2, *[st.floats()] * 3, COUNTS, st.floats(), st.floats(), COUNTS),
    st.builds(Evaluated, COUNTS, METRICS, st.booleans(), st.lists(OUTPUTS, max_size=2).map(tuple), st.just({"a": "b"})),
    st.builds(Saved, COUNTS, WORDS, st.floats()),
    st.builds(Skipped, COUNTS, WORDS, COUNTS),
    st.builds(Ended, COUNTS, WORDS, st.floats(), METRICS),
)


def trained(step: int, loss: float = 1.0) -> Trained:
    return Trained(step, 0, loss, 1e-3, 0.5, 10 * step, 100.0, step / 2, 1)


def write(path: Path, *events: Event) -> Path:
    with closing(LogFile(path)) as log:
        for event in events:
            log.on_event(event)
    return path


def same(one: Any, other: Any) -> bool:
    """Equality under which nan equals itself, and a list a tuple."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=5))
def test_events_come_back_as_they_were(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    entries = read_log(write(path, *events))
    assert len(entries) == len(events)
    for entry, event in zip(entries, events, strict=True):
        assert entry.pop("event") == type(event).__name__.lower()
        assert entry.pop("time") > 1.7e9
        assert same(entry, asdict(event))


def test_every_line_is_json_for_any_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", trained(1, math.nan), Evaluated(1, {"loss": math.inf, "f": -math.inf}, False))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    first, second = (json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines())
    assert first["loss"] == "nan"
    assert second["metrics"] == {"loss": "inf", "f": "-inf"}


def test_half_a_surrogate_pair_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", Skipped(1, "\udc80é", 1))
    assert read_log(path)[0]["reason"] == "\udc80é"
    assert "é" in path.read_text(encoding="utf-8")  # for people who read along


def test_facts_may_be_any_plain_values(tmp_path: Path) -> None:
    facts = MappingProxyType({"ranks": 2, "shape": (3, 4), "versions": {"torch": "2"}, "at": Path("a"), "none": None})
    entry = read_log(write(tmp_path / "log.jsonl", Started(0, 10, facts)))[0]
    assert entry["facts"] == {"ranks": 2, "shape": [3, 4], "versions": {"torch": "2"}, "at": "a", "none": None}


def test_what_json_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DtypeError, match="got a complex, expected strings, numbers"):
        write(tmp_path / "log.jsonl", Started(0, 10, {"z": 1j}))
    assert read_log(tmp_path / "log.jsonl") == []


def test_a_line_is_in_the_file_before_the_next_one_is_heard(tmp_path: Path) -> None:
    with closing(LogFile(tmp_path / "log.jsonl")) as log:
        for step in range(1, 4):
            log.on_event(trained(step))
            assert len(read_log(tmp_path / "log.jsonl")) == step


def test_steps_done_again_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, Started(0, 6), trained(1, 5.0), trained(2, 4.0), trained(3, 3.0), Ended(3, "interrupted", 1.0))
    write(path, Resumed(2, 6), trained(3, 3.5), trained(4, 2.5), trained(5, 2.4))
    write(path, Resumed(4, 6), trained(5, 2.0))
    entries = read_log(path)
    assert [(entry["event"], entry["step"]) for entry in entries] == [
        ("started", 0),
        ("trained", 1),
        ("trained", 2),
        ("resumed", 2),
        ("trained", 3),
        ("trained", 4),
        ("resumed", 4),
        ("trained", 5),
    ]
    assert series(entries, "trained", "loss") == ([1, 2, 3, 4, 5], [5.0, 4.0, 3.5, 2.5, 2.0])


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 30)), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_resumed_equals_uninterrupted(tmp_path: Path, processes: list[tuple[int, int]]) -> None:
    """Processes that each make some steps and go back to any earlier one leave each step once."""
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    write(path, Started(0, 100), trained(1))
    reached = 1
    for more, back in processes:
        step = min(back, reached)
        reached = step + more
        write(path, Resumed(step, 100), *map(trained, range(step + 1, reached + 1)))
    assert series(read_log(path), "trained", "tokens") == (
        list(range(1, reached + 1)),
        [10 * step for step in range(1, reached + 1)],
    )


def test_a_training_started_anew_forgets_the_old_one(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", Started(0, 6), Evaluated(0, {"loss": 9.0}, True), trained(1, 5.0))
    write(path, Started(0, 6), trained(1, 4.0))
    assert [entry["event"] for entry in read_log(path)] == ["started", "trained"]


def test_a_cut_line_is_neither_read_nor_glued(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", Started(0, 6), trained(1), trained(2))
    *before, last = path.read_bytes().splitlines(keepends=True)
    for left in range(len(last)):
        path.write_bytes(b"".join(before) + last[:left])
        told = [(entry["event"], entry["step"]) for entry in read_log(path)]
        lost = left < len(last) - 1  # without its newline alone, the line is all there
        assert told == [("started", 0), ("trained", 1), ("trained", 2)][: 2 if lost else 3]
        write(path, Resumed(1, 6), trained(2))
        told = [(entry["event"], entry["step"]) for entry in read_log(path)]
        assert told == [("started", 0), ("trained", 1), ("resumed", 1), ("trained", 2)]


def test_two_crashes_in_a_row(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", Started(0, 6), trained(1))
    for _ in range(2):
        path.write_bytes(path.read_bytes() + b'{"event": "resu')
        write(path)
    assert len(read_log(path)) == 2
    write(path, Resumed(1, 6))
    assert len(read_log(path)) == 3


@pytest.mark.parametrize("damage", [b"{", b"", b"[1]", b'"x"', b'{"event": "trained"}', b"\xff", b"\0\0"])
def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path / "log.jsonl", Started(0, 6), trained(1))
    path.write_bytes(path.read_bytes() + damage + b"\n")
    assert len(read_log(path)) == 2
    write(path, trained(2))
    with pytest.raises(RunError) as refused:
        read_log(path)
    assert str(refused.value).startswith(f"{path}:3: This line is no event as JSON")


def test_series_of_metrics_and_of_fields() -> None:
    entries = [
        {"event": "evaluated", "step": 1, "best": True, "metrics": {"loss": 3.0}},
        {"event": "trained", "step": 2, "loss": 2.5},
        {"event": "evaluated", "step": 4, "best": False, "metrics": {"loss": 4.0, "bleu": 7.0}},
    ]
    assert series(entries, "evaluated", "loss") == ([1, 4], [3.0, 4.0])
    assert series(entries, "evaluated", "bleu") == ([4], [7.0])
    assert series(entries, "evaluated", "best") == ([1, 4], [True, False])
    assert series(entries, "trained", "loss") == ([2], [2.5])
    assert series(entries, "trained", "bleu") == ([], [])


def test_no_such_file_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No such file or directory"):
        read_log(tmp_path / "log.jsonl")
    with pytest.raises(RunError, match="Could not open the log"):
        LogFile(tmp_path / "missing" / "log.jsonl")
