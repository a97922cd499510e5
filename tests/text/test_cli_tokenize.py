"""`regard tokenize`: train, text, store, verify; for people and for machines."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import cli
from regard.errors import RegardError
from regard.text.store.store import Store
from regard.text.tokenizers.tokenizer import Tokenizer

LINES = [f"the cat number {number} sat on the mat ." for number in range(60)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("".join(line + "\n" for line in LINES))
    (tmp_path / "more.gz").write_bytes(gzip.compress("l'été [MASK]\n".encode() + b"x" * 1_100_000 + b"\n"))
    return tmp_path


def run(*arguments: str) -> str:
    """What a verb prints to standard output; its errors come through."""
    result = CliRunner().invoke(cli.app, ["tokenize", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_train(folder: Path) -> None:
    said = run("train", "text.txt", "more.gz", "--size", "120", "-o", "t.json")
    tokenizer = Tokenizer.load(folder / "t.json")
    assert said.startswith("t.json: bpe, ")
    assert f"{len(tokenizer)} pieces" in said
    assert tokenizer.decode(tokenizer.encode("l'été").ids) == "l'été"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("--kind", "byte-bpe", "--size", "300"), "BPE"),
        (("--kind", "wordpiece", "--size", "100"), "WordPiece"),
        (("--kind", "wordpiece", "--size", "100", "--cased"), "WordPiece"),
        (("--kind", "unigram", "--size", "100"), "Unigram"),
        (("--kind", "words", "--size", "20"), "WordLevel"),
        (("--kind", "characters"), "WordLevel"),
    ],
)
def test_train_every_kind(folder: Path, arguments: tuple[str, ...], kind: str) -> None:
    told = json.loads(run("train", "text.txt", "more.gz", *arguments, "--json"))
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    assert told["size"] == len(tokenizer)
    assert told["fingerprint"] == tokenizer.fingerprint
    assert told["special"]["mask"] == tokenizer.special.mask
    assert told["skipped"]["count"] == 1
    assert told["skipped"]["places"][0].startswith("more.gz:2")
    assert kind in repr(tokenizer)
    assert ("É" in tokenizer.normalize("É")) == ("--cased" in arguments or kind != "WordPiece")


def test_a_smaller_vocabulary_is_reported(folder: Path) -> None:
    assert "8000 were requested" in run("train", "text.txt")


def test_text(folder: Path) -> None:
    run("train", "text.txt", "--kind", "words", "--size", "70", "-o", "t.json")
    (folder / "in.txt").write_text("the cat\n\nsat [MASK] dog\n")
    assert run("text", "t.json", "in.txt").splitlines() == ["▁the ▁cat", "", "▁sat <unk> <unk>"]
    tokenizer = Tokenizer.load(folder / "t.json")
    ids = [" ".join(map(str, tokenizer.encode(line).ids)) for line in ("the cat", "", "sat [MASK] dog")]
    assert run("text", "t.json", "in.txt", "--ids").splitlines() == ids
    told = [json.loads(line) for line in run("text", "t.json", "in.txt", "--json", "--special-tokens").splitlines()]
    assert told[2] == {
        "line": 3,
        "ids": [tokenizer.id("▁sat"), tokenizer.special.mask, tokenizer.special.unknown],
        "pieces": ["▁sat", "[MASK]", "<unk>"],
        "offsets": [[0, 3], [4, 10], [11, 14]],
        "words": [0, 1, 2],
    }
    assert "skipped 1: more.gz:2" in CliRunner().invoke(cli.app, ["tokenize", "text", "t.json", "more.gz"]).stderr


def test_standard_input(folder: Path) -> None:
    command = [sys.executable, "-m", "regard", "tokenize"]
    source = (folder / "text.txt").read_text()
    done = subprocess.run([*command, "train", "-", "--size", "90"], input=source, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [*command, "text", "tokenizer.json"], input="the cat", capture_output=True, text=True, encoding="utf-8"
    )
    assert done.stdout == "▁the ▁cat\n", done.stderr


def test_store_and_verify(folder: Path) -> None:
    run("train", "text.txt", "--size", "90", "-o", "t.json")
    told = json.loads(run("store", "t.json", "text.txt", "text.txt", "-o", "s", "--workers", "2", "--json"))
    store = Store.open(folder / "s")
    assert told["examples"] == 2
    assert told["tokens"] == {"text": len(store["text"].ids)}
    assert len(store) == 2 * len(LINES)
    assert run("store", "t.json", "text.txt", "text.txt", "-o", "s").startswith("s: 2 examples, ")
    assert run("verify", "s") == "s: 3 files, sound\n"
    assert json.loads(run("verify", "s", "--json"))["sound"] == ["text.ids.npy", "text.ends.npy", "documents.npy"]
    run("train", "text.txt", "--kind", "characters", "-o", "c.json")
    run("store", "t.json", "text.txt", "text.txt", "--format", "translation", "--target-tokenizer", "c.json", "-o", "p")
    pairs = Store.open(folder / "p")
    assert Tokenizer.load("c.json").decode(pairs["target"][3]) == LINES[3]
    assert Tokenizer.load("t.json").decode(pairs["source"][3]) == LINES[3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "text.txt", "--kind", "characters", "--size", "9"), "takes no --size"),
        (("train", "text.txt", "--cased"), "only for --kind wordpiece"),
        (("train", "text.txt", "-o", "nowhere/t.json"), "The folder of nowhere/t.json does not exist"),
        (("train", "missing.txt"), "File not found"),
        (("text", "text.txt"), "A tokenizer.json is expected"),
        (("store", "t.json", "text.txt", "--format", "translation", "-o", "s"), "two, SOURCE TARGET"),
        (("store", "t.json", "text.txt", "--target-tokenizer", "t.json", "-o", "s"), "--format translation"),
        (("verify", "."), "no manifest.json"),
    ],
)
def test_refused_in_words(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    if "t.json" in arguments:
        run("train", "text.txt", "--size", "90", "-o", "t.json")
    with pytest.raises(RegardError) as caught:
        CliRunner().invoke(cli.app, ["tokenize", *arguments], catch_exceptions=False)
    assert said in str(caught.value)


def test_help_loads_nothing_heavy() -> None:
    script = """
import sys
from regard.cli import app
from typer.testing import CliRunner
assert CliRunner().invoke(app, ["tokenize", "--help"]).exit_code == 0
print({"torch", "numpy", "tokenizers", "rich.progress"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_a_verb_of_text_needs_no_torch(folder: Path) -> None:
    run("train", "text.txt", "--size", "90", "-o", "t.json")
    script = """
import sys
from typer.testing import CliRunner
from regard.cli import app
assert CliRunner().invoke(app, ["tokenize", "store", "t.json", "text.txt", "-o", "s"]).exit_code == 0
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_unknown_kinds_are_refused(folder: Path) -> None:
    result = CliRunner().invoke(cli.app, ["tokenize", "train", "text.txt", "--kind", "bep"])
    assert result.exit_code == 2
    assert "bpe" in result.output


def test_a_pipe_is_read_where_standard_input_is_meant_and_nowhere_else(folder: Path) -> None:
    run("train", "text.txt", "--size", "60", "-o", "t.json")
    os.mkfifo(folder / "fifo")
    ask = [sys.executable, "-m", "regard", "tokenize", "text", "t.json"]
    piped = subprocess.run([*ask, "-"], input=b"the cat\n", capture_output=True, timeout=120)
    assert (piped.returncode, piped.stdout.decode().split()[0][:2]) == (0, "▁t"), piped.stderr
    for verb in ("train", "text"):
        with pytest.raises(RegardError, match=r"got a (FIFO|character device), expected a regular file"):
            run(*(("text", "t.json", "fifo") if verb == "text" else ("train", "/dev/zero", "-o", "u.json")))
