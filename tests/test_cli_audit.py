"""`regard audit` as its users meet it: a table and words, JSON, a report that is kept, each mistake one sentence."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from faults.command import begin, end
from regard import cli
from regard.faithfulness.report import Report
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

SMALL = [
    "data.examples=60",
    "data.valid=10",
    "train.steps=2",
    "evaluate.every=2",
    "train.threads=1",
    "train.device=cpu",
]
PAIRS = ["data.valid=4", "batches.tokens=200", "model.width=8", "model.encoder_dim=16", "model.hidden=16"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regard", "audit"]
RUNS = {
    "classifier": ["model.width=8"],
    "bahdanau": PAIRS,
    "window-lm": ["model.width=8", "model.hidden=8"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier, a translator and a model without attention, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    for name, sets in RUNS.items():
        train(read_recipe(name, [*SMALL, *sets], tasks=TASKS), folder / name, notify=lambda text: None)
    return folder


class Command:
    """Runs the command line in this process: exit code, what it printed, what it complained of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["regard", "audit", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self.capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err


@pytest.fixture
def regard_audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.tsv"
    rows = [
        ("the film was good", "positive"),
        ("the meal was not bad at all", "positive"),
        ("he did not like it", "negative"),
    ]
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def test_a_table_and_what_to_believe(runs: Path, regard_audit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    code, out, err = regard_audit(runs / "classifier", "built-in", "--max-examples", 4)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["map", "compr", "gain", "tau", "perm", "altern", "prec"]
    first = [line.split()[0] for line in lines[1:] if line.strip()]
    for name in ("attention", "rollout", "integrated", "pooling", "pooling/0", "random"):
        assert name in first
    assert "4 decisions (class)" in out and "% of them right" in out and "±" in out
    assert any(line.startswith("pooling  This map ") or "Too few" in line for line in lines)
    kept = runs / "classifier" / "audit.json"
    assert str(kept) in out and "\x1b" not in out
    report = Report.load(kept)
    assert report.facts["decisions"] == 4 and report.facts["accuracy"]["count"] == 4
    assert report.badges()["pooling"].keys() == {"0"} and "precision" in report.estimates("rollout")
    assert {one["predicted"] for one in report.examples} <= {"positive", "negative"}


def test_json_is_the_report_and_the_same_each_time(
    runs: Path, table: Path, tmp_path: Path, regard_audit: Command
) -> None:
    code, out, err = regard_audit(runs / "classifier", table, "--json", "-o", tmp_path / "a.json")
    assert code == 0, err
    told = json.loads(out)
    assert told == json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert told == json.loads((runs / "classifier" / "audit.json").read_text(encoding="utf-8"))
    assert told["facts"]["accuracy"]["count"] == 3 and told["facts"]["settings"]["seed"] == 0
    _, again, _ = regard_audit(runs / "classifier", table, "--json")
    assert json.loads(again) == told
    _, other, _ = regard_audit(runs / "classifier", table, "--json", "--seed", 1)
    first, second = (json.loads(text)["examples"][0]["maps"] for text in (out, other))
    assert first["pooling"]["permuted"] != second["pooling"]["permuted"]
    assert first["pooling"]["uniform"] == second["pooling"]["uniform"]
    assert not list(tmp_path.glob("*.journal"))


def test_words_of_translations(runs: Path, tmp_path: Path, regard_audit: Command) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text(
        "the cat sleeps .\tle chat dort .\t0-0 1-1 2-2 3-3\nhe is old .\til est vieux .\n", encoding="utf-8"
    )
    code, out, err = regard_audit(runs / "bahdanau", file, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["facts"]["decision"] == "next word of the translation" and told["facts"]["decisions"] == 4
    assert [("precision" in one["maps"]["decoder"]) for one in told["examples"]] == [True, True, False, False]


def test_two_processes_find_what_one_finds(runs: Path, tmp_path: Path) -> None:
    """To the byte, and no journal stays behind."""
    texts = [
        f"the {a} was {b}" for a in ("film", "meal", "man") for b in ("good", "bad", "old", "not good", "not bad", "it")
    ]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    asked = [runs / "classifier", file, "-o"]
    end(begin("-m", "regard", "audit", *asked, tmp_path / "one.json"))
    end(begin(*TORCHRUN, *asked, tmp_path / "two.json"))
    one, two = ((tmp_path / name).read_bytes() for name in ("one.json", "two.json"))
    assert one == two and len(json.loads(one)["examples"]) == 18  # more than one part
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "texts.txt", "two.json"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("nowhere", ["built-in"], "nowhere"),
        ("classifier", ["nowhere.txt"], "nowhere.txt"),
        (
            "classifier",
            ["built-in", "-o", "audit.pdf"],
            "got audit.pdf, expected a file name that ends in .html or .json",
        ),
        ("classifier", ["built-in", "-o", "none/a.json"], "there is no folder none"),
        ("classifier", ["built-in", "--places", "decoder.*"], "Unknown place 'decoder.*'"),
        ("window-lm", ["built-in"], "No attention was computed"),
    ],
)
def test_each_mistake_is_one_sentence(
    name: str,
    arguments: list[str],
    said: str,
    runs: Path,
    regard_audit: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = regard_audit(runs / name, *arguments)
    assert code == 2 and said in err and len(err.splitlines()) == 1, err


def test_tables_are_read_by_their_columns(runs: Path, tmp_path: Path, regard_audit: Command) -> None:
    for text, said in (
        ("words\tlabel\nthe cat\tpositive\n", "Unknown column 'text'"),
        ("text\tlabel\nthe cat sleeps\tperhaps\n", "'perhaps'"),
        ("text\tlabel\ncat\tpositive\n", "None of the 1 examples can be audited"),
    ):
        (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
        code, _, err = regard_audit(runs / "classifier", tmp_path / "a.tsv")
        assert code == 2 and said in err and len(err.splitlines()) == 1, err


def test_parts_of_another_audit_are_refused(runs: Path, table: Path, tmp_path: Path, regard_audit: Command) -> None:
    journal = tmp_path / "a.json.0.journal"
    journal.write_text('{"head": {"model": "another"}}\n{"part": 0, "results": []}\n', encoding="utf-8")
    code, _, err = regard_audit(runs / "classifier", table, "-o", tmp_path / "a.json")
    assert code == 2 and "belongs to an audit of another model" in err and "Delete it to start anew" in err
    assert journal.exists() and not (tmp_path / "a.json").exists()
