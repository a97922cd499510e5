"""`regard translate`, `align`, `score` and `demo` as their users meet them."""

import json
import sys
import tracemalloc
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from regard import cli
from regard.text.grammar.corpus_files import write_corpus
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

SENTENCES = ["He resembles us today .", "", "The old judge is thirsty ."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translator, one without attention, and a language model, each hardly trained; and a corpus."""
    folder = tmp_path_factory.mktemp("runs")
    write_corpus(folder / "corpus", 200)
    small = ["data.examples=200", "data.valid=10", "train.steps=4", "evaluate.every=4", "train.threads=1"]
    for name, sets in (
        ("bahdanau", ["model.hidden=16", "model.encoder_dim=16", "model.width=8", "evaluate.generations=4"]),
        ("seq2seq", ["model.hidden=16", "model.encoder_dim=16", "model.width=8", "evaluate.generations=4"]),
        ("recurrent-lm", ["model.hidden=8", "model.width=8"]),
    ):
        train(read_recipe(name, [*small, *sets], tasks=TASKS), folder / name, notify=lambda text: None)
    return folder


class Command:
    """Runs the command line in this process: exit code, what it printed, what it complained of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self.capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_a_file_comes_out_line_by_line_and_blank_lines_stay(runs: Path, regard: Command, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    code, out, _ = regard("translate", runs / "bahdanau", tmp_path / "in.txt", "--max-length", 6, "--min-length", 2)
    assert code == 0
    lines = out.split("\n")
    assert (len(lines), lines[1]) == (4, "")
    assert lines[0] and lines[2]
    _, alone, _ = regard("translate", runs / "bahdanau", SENTENCES[2], "--max-length", 6, "--min-length", 2)
    assert alone == lines[2] + "\n"


def test_standard_input_is_read(runs: Path, regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", iter([f"{SENTENCES[0]}\n"]))
    code, out, _ = regard("translate", runs / "bahdanau", "-", "--max-length", 6, "--min-length", 2)
    assert (code, len(out.splitlines())) == (0, 1)


def test_json_has_everything(runs: Path, regard: Command) -> None:
    ask = ("--n-best", 2, "--max-length", 6, "--min-length", 2, "--json")
    code, out, _ = regard("translate", runs / "bahdanau", SENTENCES[0], *ask)
    told = [json.loads(line) for line in out.splitlines()]
    assert (code, [one["rank"] for one in told]) == (0, [1, 2])
    assert told[0]["score"] >= told[1]["score"]
    for one in told:
        assert len(one["weights"]) == len(one["words"]["target"]) == len(one["text"].split())
        assert all(len(row) == len(one["words"]["source"]) == 5 for row in one["weights"])


def test_rules_are_kept(runs: Path, regard: Command) -> None:
    ask = ("--max-length", 6, "--min-length", 3, "--prefix", "Le juge", "--ban", "de", "--require", "a")
    _, out, _ = regard("translate", runs / "bahdanau", SENTENCES[2], *ask)
    words = out.split()
    assert words[:2] == ["Le", "juge"]
    assert "a" in words
    assert "de" not in words


def test_alignment_adds_links_that_are_links(runs: Path, regard: Command) -> None:
    _, out, _ = regard(
        "translate", runs / "bahdanau", SENTENCES[0], "--alignment", "--max-length", 6, "--min-length", 2
    )
    text, _, links = out.strip().partition(" ||| ")
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert {j for _, j in pairs} == set(range(len(text.split())))
    assert all(i < 5 for i, _ in pairs)


def test_align_prints_links_and_with_gold_how_right_they_are(runs: Path, regard: Command) -> None:
    corpus = runs / "corpus"
    files = (corpus / "test.en", corpus / "test.fr")
    code, out, _ = regard("align", runs / "bahdanau", *files)
    sentences = files[0].read_text(encoding="utf-8").splitlines()
    assert (code, len(out.splitlines())) == (0, len(sentences))
    _, out, _ = regard("align", runs / "bahdanau", *files, "--gold", corpus / "test.align", "--json")
    told = json.loads(out)
    assert told["sentences"] == len(sentences)
    assert 0 <= told["precision"] <= 1
    assert told["aer"] == pytest.approx(1 - (told["in_sure"] + told["in_possible"]) / (told["links"] + told["sure"]))


def test_score_prints_signatures_or_perplexity(runs: Path, regard: Command) -> None:
    corpus = runs / "corpus"
    files = (corpus / "test.en", corpus / "test.fr")
    code, out, _ = regard("score", runs / "bahdanau", *files, "--beam", 1)
    assert code == 0
    assert "nrefs:1|case:mixed" in out
    code, out, _ = regard("score", runs / "recurrent-lm", corpus / "test.en", "--json")
    plain = json.loads(out)
    assert (code, plain["perplexity"] > 1) == (0, True)
    _, out, _ = regard("score", runs / "recurrent-lm", corpus / "test.en", "--cache-size", 50, "--json")
    assert json.loads(out)["perplexity"] != plain["perplexity"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("translate", "recurrent-lm", "A word ."), "task 'translation'"),
        (("translate", "nowhere", "A word ."), "is not a run"),
        (("translate", "bahdanau", "A word .", "--ban", "blörp"), "vocabulary"),
        (("score", "bahdanau", "corpus/test.en"), "RUN FILE TARGET"),
        (("align", "seq2seq", "corpus/test.en", "corpus/test.fr"), "bottleneck"),
        (("align", "bahdanau", "corpus/test.en", "corpus/train.fr"), "has 10 lines, but corpus/train.fr has 200"),
        (("align", "bahdanau", "corpus/test.en", "corpus/none.fr"), "none.fr"),
        (("translate", "bahdanau", "A word .", "--beam", "2", "--coverage-penalty", "-1"), "coverage"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], said: str, runs: Path, regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    code, _, err = regard(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


def test_demo_prints_its_results_and_resumes(regard: Command, tmp_path: Path) -> None:
    ask = ("demo", "--out", tmp_path, "--steps", 3, "--sentences", 12)
    code, out, err = regard(*ask)
    assert code == 0, err
    assert all(word in out for word in ("BLEU", "AER", "Attention", "nrefs:1"))
    words = "".join(ElementTree.parse(tmp_path / "attention.svg").getroot().itertext())
    assert "attention weights" in words
    code, out, _ = regard(*ask, "--json")  # a trained one is there: straight to the looking
    told = json.loads(out)
    assert code == 0
    assert set(told) >= {"bleu", "by_length", "alignment", "training_seconds", "picture"}


def test_many_lines_take_bounded_memory(runs: Path, regard: Command, tmp_path: Path) -> None:
    """What is held for each translated line is its text alone: not its scores, attention and encoding."""
    (tmp_path / "in.txt").write_text("a b\n" * 6000)
    peaks = []
    for lines in (2000, 6000):
        (tmp_path / "in.txt").write_text("a b\n" * lines)
        tracemalloc.start()
        code, out, _ = regard("translate", runs / "bahdanau", tmp_path / "in.txt", "--max-length", 2, "--beam", 1)
        peaks.append(tracemalloc.get_traced_memory()[1] - len(out))
        tracemalloc.stop()
        assert (code, len(out.splitlines())) == (0, lines)
    assert peaks[1] - peaks[0] < 4000 * 250, peaks  # bytes


def test_a_long_line_is_refused(runs: Path, regard: Command, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b\n" + "word " * 2_000_000)
    code, _, err = regard("translate", runs / "bahdanau", tmp_path / "in.txt")
    assert code == 2 and "in.txt:2: got a line of more than 5,000 characters" in err
