"""The kernels are the ones that were tested on a GPU: their digests are those of the committed report."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import kernel_report
from kernel_report import COMMAND, REPORT, digest, digests, merged, problems, summary

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

KERNEL = '''
"""A kernel."""
import triton


@triton.jit
def double(X, n):
    """Twice X."""
    return X * 2 + f"{n}".count("1")  # twice
'''
SAME = """import triton
@triton.jit
def double(
    X,
    n,
):
    return (X * 2) + f'{n}'.count('1')
"""


@pytest.mark.skipif(not REPORT.exists(), reason=f"tests/gpu/report.json is not written yet; make it {COMMAND}")
def test_every_kernel_is_the_one_that_was_tested_on_a_gpu() -> None:
    said = problems(json.loads(REPORT.read_text(encoding="utf-8")), digests())
    assert not said, "\n".join(said)


def test_comments_docstrings_and_format_do_not_change_a_digest() -> None:
    assert digest(KERNEL) == digest(SAME)


@pytest.mark.parametrize(
    ("old", "new"), [("* 2", "* 3"), ("X, n", "X, n=1"), ('"1"', '"2"'), ("@triton.jit\n", ""), ("2 +", "2.0 +")]
)
def test_what_a_compiler_sees_changes_a_digest(old: str, new: str) -> None:
    assert old in KERNEL
    assert digest(KERNEL.replace(old, new, 1)) != digest(KERNEL)


def test_kernels_are_found_in_their_folders_and_elsewhere(tmp_path: Path) -> None:
    sources = {
        "src/regard/attention/kernels/triton/launch.py": "x = 1",  # no kernel, but it chooses them
        "src/regard/attention/kernels/hopper/forward.py": "@gluon.jit(do_not_specialize=[])\ndef f(): pass",
        "src/regard/models/norm.py": KERNEL,
        "src/regard/models/plain.py": "x = '@triton.jit'",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(digests(tmp_path)) == set(sources) - {"src/regard/models/plain.py"}


def test_the_kernels_of_this_tree_are_found() -> None:
    found = {Path(name).stem for name in digests()}
    assert {"forward", "statistics", "backward", "decode", "topk", "gelu_triton", "additive_kernels"} <= found


def record(names: list[str], outcome: str = "passed", **changed: Any) -> dict[str, Any]:
    suite = [f"tests/gpu/test_a.py::test[{number}]" for number in range(2)] + ["tests/gpu/test_b.py::test"]
    of_run = {"machine": {"gpu": "H", "torch": "2", "triton": "3"}, "commit": "c" * 40, "date": "2026-01-01T00:00"}
    outcomes = [{"name": f"tests/gpu/{name}", "outcome": outcome} for name in names]
    return {**of_run, "kernels": {"a.py": "1", "b.py": "2"}, "suite": suite, "outcomes": outcomes, **changed}


ALL = ["test_a.py::test[0]", "test_a.py::test[1]", "test_b.py::test"]


def test_a_whole_run_vouches_for_its_kernels() -> None:
    report = merged([record(ALL)])
    assert report["tests"]["test_a.py"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert problems(report, {"a.py": "1", "b.py": "2"}) == []


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"a.py": "1", "b.py": "3"}, "b.py has changed since"),
        ({"a.py": "1", "b.py": "2", "new.py": "4"}, "new.py is a kernel that"),
        ({"a.py": "1"}, "b.py was tested on a GPU and is gone"),
    ],
)
def test_another_kernel_is_named_with_the_command_that_makes_a_report(now: dict[str, str], words: str) -> None:
    (said,) = problems(merged([record(ALL)]), now)
    assert words in said and "make test-gpu" in said


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (record(ALL, "failed"), "3 GPU tests failed, the first is tests/gpu/test_a.py::test[0]"),
        (record(ALL[1:]), "1 GPU tests were not run, the first is tests/gpu/test_a.py::test[0]"),
        (record(ALL, "skipped"), "No GPU test has passed"),
    ],
)
def test_a_report_with_failures_or_gaps_vouches_for_nothing(one: dict[str, Any], words: str) -> None:
    assert any(words in said for said in problems(merged([one]), {"a.py": "1", "b.py": "2"}))


def test_slices_are_one_report_and_the_later_outcome_counts() -> None:
    report = merged([record(ALL[:2], "failed"), record(ALL[1:]), record(ALL[:1], "skipped")])
    assert report["tests"]["test_a.py"] == {"passed": 1, "failed": 0, "skipped": 1}
    assert report["failed"] == report["not run"] == []
    assert summary(report).startswith("GPU tests: 2 passed, 0 failed, 1 skipped, 0 not run; 2 kernel files; H, torch 2")


def test_slices_of_other_kernels_or_machines_are_refused() -> None:
    with pytest.raises(ValueError, match=r"other kernels: b\.py differs"):
        merged([record(ALL), record(ALL, kernels={"a.py": "1", "b.py": "3"})])
    with pytest.raises(ValueError, match="two machines"):
        merged([record(ALL), record(ALL, machine={"gpu": "A", "torch": "2", "triton": "3"})])


TESTS = """
import os, pytest

def test_good(): pass
def test_bad(): assert 1 == 2, "two is not one"
def test_left_out(): pytest.skip("no reason")
def test_deadly(): os._exit(3)
def test_after(): pass
"""


def test_a_test_that_kills_its_process_has_failed_and_the_others_have_their_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import run

    monkeypatch.setattr(run, "ROOT", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    names = [f"test_some.py::test_{name}" for name in ("good", "bad", "left_out", "deadly", "after")]
    monkeypatch.setattr(run, "batches_of", lambda names: [names])
    found = run.Workers(names, 1, 600.0).run()
    kinds = {one["name"].rpartition("test_")[2]: one["outcome"] for one in found}
    assert kinds == {"good": "passed", "bad": "failed", "left_out": "skipped", "deadly": "failed", "after": "passed"}
    assert ["two is not one" in one["said"] for one in found if one["outcome"] == "failed"] == [True, False]
    assert len(found) == len(names)
    assert run.Workers(names, 1, 0.0).run() == []  # no time


def test_neighbours_stay_together_and_functions_take_turns() -> None:
    import run

    names = [f"t.py::{function}[{number}]" for function in ("a", "b") for number in range(8)]
    batches = run.batches_of(names)
    assert [batch[0] for batch in batches] == ["t.py::a[0]", "t.py::b[0]", "t.py::a[6]", "t.py::b[6]"]
    assert sorted(name for batch in batches for name in batch) == names


def test_a_commit_can_be_told_where_there_is_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    import run

    monkeypatch.setenv("REGARD_COMMIT", "abc")
    assert run.commit() == "abc"
    assert kernel_report.REPORT.name == "report.json"
