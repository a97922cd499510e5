"""The command line: the look-up tells the truth, and every failure is words and an exit code."""

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard import RegardError, cli
from regard.cli import _show_warning, lookup, lookup_demo
from regard.errors import CaptureWarning, CheckpointWarning, RunWarning


def regard_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments], capture_output=True, text=True, encoding="utf-8"
    )


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_version() -> None:
    done = regard_command("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"regard {regard.__version__}")


def test_lookup_prints_without_escape_codes(tmp_path: Path) -> None:
    done = regard_command("lookup", "--out", str(tmp_path / "new" / "folder"))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "finds nothing" in done.stdout
    figure = tmp_path / "new" / "folder" / "lookup.svg"
    assert str(figure) in done.stdout
    text = "".join(ElementTree.parse(figure).getroot().itertext())
    assert all(label in text for label in lookup_demo.SHELF)
    assert "nothing found" in text


def test_lookup_json(tmp_path: Path) -> None:
    done = regard_command("lookup", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["figure"]).is_file()
    assert [one["word"] for one in told["lookups"]] == list(lookup.WORDS)
    soft = [answer for one in told["lookups"] for answer in one["answers"] if answer["temperature"] is not None]
    assert len(soft) == len(lookup.WORDS) * len(lookup_demo.TEMPERATURES)
    for answer in soft:
        assert sum(answer["weights"]) == pytest.approx(1, abs=1e-12)


def test_hard_look_up_is_a_dict() -> None:
    for label, price in lookup_demo.SHELF.items():
        hard = lookup_demo.look_up(label).answers[0]
        assert hard.weights == tuple(float(label == other) for other in lookup_demo.SHELF)
        assert (hard.entropy, hard.price) == (0, pytest.approx(price))


def test_a_misspelt_word_is_found_by_attention_alone() -> None:
    hard, cold, *_ = lookup_demo.look_up("buter").answers
    assert hard.weights == (0,) * len(lookup_demo.SHELF)
    assert (hard.entropy, hard.price) == (0, None)
    assert cold.price == pytest.approx(lookup_demo.SHELF["butter"], abs=0.01)


def test_warming_up_goes_from_the_dict_to_the_mean() -> None:
    answers = lookup_demo.look_up("butter").answers
    entropies = [answer.entropy for answer in answers]
    assert entropies == sorted(entropies)
    assert entropies[-1] == pytest.approx(math.log(len(lookup_demo.SHELF)), abs=0.01)
    assert answers[1].price == pytest.approx(lookup_demo.SHELF["butter"], abs=0.01)
    assert answers[-1].price == pytest.approx(sum(lookup_demo.SHELF.values()) / len(lookup_demo.SHELF), abs=0.05)


def test_the_figure_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    lookups = [lookup_demo.look_up(word) for word in lookup.WORDS]
    first, second = (lookup.draw(lookups, tmp_path / name).read_bytes() for name in ("first.svg", "second.svg"))
    assert first == second


def test_an_error_is_one_message_without_traceback(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    done = regard_command("lookup", "--out", str(taken))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Could not create the folder" in done.stderr
    assert str(taken) in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    done = regard_command("--debug", "lookup", "--out", str(taken))
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "Could not create the folder" in done.stderr


def test_an_unexpected_error_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lookup, "look_up", fail_with(ZeroDivisionError("by zero\nmore")))
    assert run_main(monkeypatch, "lookup") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ZeroDivisionError: by zero;" in said
    assert "--debug" in said


@pytest.mark.parametrize("error", [RegardError("bad", "good"), ZeroDivisionError("bad")])
def test_debug_lets_every_error_through(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(lookup, "look_up", fail_with(error))
    monkeypatch.setattr(sys, "argv", ["regard", "--debug", "lookup"])
    with pytest.raises(type(error), match="bad"):
        cli.main()


def test_ctrl_c_leaves_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(lookup, "look_up", fail_with(KeyboardInterrupt()))
    assert run_main(monkeypatch, "lookup") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_unknown_verb_is_refused() -> None:
    done = regard_command("attent")
    assert done.returncode == 2
    assert "attent" in done.stderr


def fail_with(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("kind", [RunWarning, CheckpointWarning, CaptureWarning])
def test_a_warning_of_regard_is_one_line_without_its_source(
    kind: type[Warning], capsys: pytest.CaptureFixture[str]
) -> None:
    _show_warning(kind("2 of 4 modules were heard"), kind, "capture.py", 103)
    assert capsys.readouterr().err == "regard: 2 of 4 modules were heard\n"
    _show_warning(UserWarning("of another library"), UserWarning, "other.py", 7)
    assert capsys.readouterr().err.startswith("other.py:7: UserWarning: of another library")
