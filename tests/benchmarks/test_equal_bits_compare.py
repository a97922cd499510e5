"""Two snapshots are equal when every bit is, whatever their files look like, and under new names, too."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmark import benchmark

bits = benchmark("equal_bits_compare")
NONE = bits.Names({})


def written(root: Path, weight: np.ndarray, log: list[dict[str, object]], name: str = "a.weight") -> Path:
    run = root / "runs" / "gpt"
    run.mkdir(parents=True)
    save_file({name: weight}, run / "model.safetensors")
    (run / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
    (run / "recipe.toml").write_text('[train]\nsteps = 20\n[data]\nkind = "built-in"\n')
    return root


def verdicts(old: Path, new: Path, names: object = NONE) -> dict[str, str]:
    return {Path(name).name: found.verdict for name, found in bits.compare(old, new, [], names).items()}


def test_times_and_paths_do_not_count(tmp_path):
    weight = np.array([1.0, np.nan], np.float32)
    old = written(tmp_path / "old", weight, [{"loss": 1.5, "time": 1.0, "file": f"{tmp_path}/old/x"}])
    new = written(tmp_path / "new", weight, [{"loss": 1.5, "time": 2.0, "file": f"{tmp_path}/new/x"}])
    assert set(verdicts(old, new).values()) == {"equal"}


def test_when_a_checkpoint_was_saved_does_not_count(tmp_path):
    trained, saved = [{"event": "trained", "step": step, "loss": 1.5} for step in (1, 2)], {"event": "saved", "step": 1}
    weight = np.zeros(1, np.float32)
    old = written(tmp_path / "old", weight, [trained[0], saved, trained[1]])
    assert verdicts(old, written(tmp_path / "new", weight, [*trained, saved]))["log.jsonl"] == "equal"
    assert verdicts(old, written(tmp_path / "other", weight, [*trained[::-1], saved]))["log.jsonl"] == "differs"


def test_one_bit_counts(tmp_path):
    weight = np.array([1.0, 2.0], np.float32)
    old = written(tmp_path / "old", weight, [{"loss": 1.5}])
    new = written(tmp_path / "new", np.nextafter(weight, np.float32(3)), [{"loss": np.nextafter(1.5, 2)}])
    assert verdicts(old, new) == {"model.safetensors": "differs", "log.jsonl": "differs", "recipe.toml": "equal"}
    found = bits.compare(old, new, [], NONE)["runs/gpt/model.safetensors"]
    assert found.largest == pytest.approx(2**-22)
    assert found.differences[0].startswith("a.weight")


def test_a_missing_file_and_a_new_one_are_told_apart(tmp_path):
    weight = np.zeros(2, np.float32)
    old, new = (written(tmp_path / name, weight, [{"loss": 1.5}]) for name in ("old", "new"))
    (old / "runs/gpt/log.jsonl").unlink()
    (new / "runs/gpt/model.safetensors").unlink()
    assert verdicts(old, new) == {"log.jsonl": "only in new", "model.safetensors": "missing", "recipe.toml": "equal"}


def test_names_are_translated(tmp_path):
    weight = np.arange(3, dtype=np.float32)
    old = written(tmp_path / "old", weight, [{"watch": {"encoder.0.itself": 1.5}, "kind": "points"}], "a.forth.weight")
    new = written(tmp_path / "new", weight, [{"monitor": {"encoder.0.self": 1.5}, "kind": "plausible"}], "b.rnn.weight")
    (new / "runs/gpt/recipe.toml").write_text('[train]\nmax_steps = 20\n[data]\nkind = "grammar"\n')
    assert "equal" not in verdicts(old, new).values()
    names = {
        "parameters": {"a.forth.*": "b.rnn.*"},
        "keys": {"gpt/*: watch": "monitor"},
        "values": {"encoder.*.itself": "encoder.*.self", "points": "plausible"},
        "settings": {"train.steps": "train.max_steps", "data.kind=built-in": "data.kind=grammar"},
    }
    assert set(verdicts(old, new, bits.Names(names)).values()) == {"equal"}
    elsewhere = names | {"keys": {"bert/*: watch": "monitor"}}
    assert verdicts(old, new, bits.Names(elsewhere))["log.jsonl"] == "differs"


def test_ignored_keys_are_left_out_on_both_sides(tmp_path):
    weight = np.zeros(2, np.float32)
    old = written(tmp_path / "old", weight, [{"loss": 1.5, "plain": "said so"}])
    new = written(tmp_path / "new", weight, [{"loss": 1.5, "plain": "put otherwise"}])
    assert verdicts(old, new)["log.jsonl"] == "differs"
    assert verdicts(old, new, bits.Names({"ignore": {"plain": "prose"}}))["log.jsonl"] == "equal"


@pytest.mark.parametrize(
    ("old", "new", "apart"),
    [
        (float("nan"), float("nan"), None),
        (0.0, -0.0, 0.0),
        (1, 1.0, float("inf")),
        (True, 1, float("inf")),
        (3, 5, 2.0),
        ("a", "b", float("inf")),
        (np.array([0.0]), np.array([-0.0]), 0.0),
        (np.array([1], np.int32), np.array([1], np.int64), float("inf")),
        (np.array(2.0), np.array(2.5), 0.5),
    ],
)
def test_distance(old, new, apart):
    assert bits.distance(old, new) == apart


def test_commands_and_settings_in_new_words():
    options = {"translate": "write", "translate --longest": "--max-length"}
    names = bits.Names({"options": options, "settings": {"evaluate.watch": "evaluate.monitor"}})
    assert names.command(["translate", "runs/a", "--longest", "5"]) == ["write", "runs/a", "--max-length", "5"]
    assert names.command(["score", "--longest"]) == ["score", "--longest"]
    assert names.setting("evaluate.watch=bleu") == "evaluate.monitor=bleu"


def test_rules_that_the_old_tree_had_already_are_not_used_again():
    first, second = bits.Names({"keys": {"a": "b"}}), bits.Names({"keys": {"a": "b", "b": "c"}})
    assert (second - first).new("keys", "b") == "c"
    assert (second - first).new("keys", "a") == "a"
