"""`regard generate` as its user meets it: a run and a prompt in, text out, and each mistake one clear sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from regard.cli.generate import generate
from regard.errors import RegardError
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

SMALL = ["data.examples=30", "data.valid=5", "train.steps=3", "train.threads=1", "evaluate.every=3"]
GPT = [
    *SMALL,
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.positions=learned",
    "batches.sequence_length=40",
]

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(generate)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "gpt"
    train(read_recipe("character-gpt", GPT, tasks=TASKS), folder, notify=lambda text: None)
    return folder


def said(*arguments: object, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments], input=given)


def objects(result: Result) -> list[dict]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_prompt_is_continued(run: Path) -> None:
    first = said(run, "The cat", "--max-length", 12)
    assert first.exit_code == 0 and first.stdout.startswith("The cat") and len(first.stdout) <= len("The cat") + 13
    assert said(run, "The cat", "--max-length", 12, "--seed", 0).stdout == first.stdout
    assert said(run, "The cat", "--max-length", 12, "--seed", 1).stdout != first.stdout
    longer = said(run, "The cat", "--max-length", 20).stdout
    assert longer.startswith(first.stdout.rstrip("\n"))


def test_without_a_prompt_a_text_is_as_long_as_the_model_allows(run: Path) -> None:
    (one,) = objects(said(run, "--json"))
    assert one["prompt"] == "" and (one["finished"] or len(one["tokens"]) == 40)


@pytest.mark.parametrize("beam", [(), ("--beam", 2)])
def test_lines_and_several_texts_come_in_order(run: Path, tmp_path: Path, beam) -> None:
    lines = ["The cat", "", "A dog"]
    file = tmp_path / "prompts.txt"
    file.write_text("".join(line + "\n" for line in lines))
    found = objects(said(run, file, "--num-samples", 2, "--max-length", 6, "--json", *beam))
    assert [(one["line"], one["rank"], one["prompt"]) for one in found] == [
        (line + 1, rank, prompt) for line, prompt in enumerate(lines) for rank in (1, 2)
    ]
    assert found == objects(
        said(run, "-", "--num-samples", 2, "--max-length", 6, "--json", *beam, given=file.read_text())
    )
    assert all(one["score"] >= other["score"] for one, other in zip(found[::2], found[1::2], strict=True))
    shown = said(run, file, "--num-samples", 2, "--max-length", 6, *beam).stdout
    assert shown == "\n".join(f"{one['prompt']}{one['text']}\n" for one in found)


def test_settings_reach_the_search(run: Path) -> None:
    greedy = said(run, "The", "--max-length", 20, "--beam", 1).stdout
    for cold in (("--temperature", 1e-6), ("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1)):
        assert said(run, "The", "--max-length", 20, *cold).stdout == greedy
    (once,) = objects(said(run, "The", "--max-length", 15, "--repetition-penalty", 1000, "--top-k", 1, "--json"))
    assert len(set(once["tokens"])) == len(once["tokens"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--beam", 2, "--top-k", 3), "--beam cannot be combined with --top-k"),
        (("--temperature", 0), "temperature=0.0, expected above 0"),
        (("--top-p", 2), "top_p=2.0"),
        (("The", "--max-length", 39), "a prompt of 3 tokens and max_length=39"),
    ],
)
def test_mistakes_are_refused_in_words(run: Path, arguments, words: str) -> None:
    error = said(run, *arguments).exception
    assert isinstance(error, RegardError) and words in str(error)


def test_a_folder_without_a_language_model_is_refused(tmp_path: Path) -> None:
    missing = said(tmp_path / "nothing").exception
    assert isinstance(missing, RegardError) and "is not a run" in str(missing)
    train(read_recipe("classifier", SMALL, tasks=TASKS), tmp_path / "other", notify=lambda text: None)
    other = said(tmp_path / "other").exception
    assert isinstance(other, RegardError) and "'classification', expected a run of task 'language'" in str(other)
