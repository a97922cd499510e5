"""`regard align` as its users meet it: places, readings, both directions, and links that are judged without a model."""

import json
import sys
from pathlib import Path

import pytest

from regard import cli
from regard.inspection.alignment.symmetrize import symmetrize
from regard.text.grammar.corpus_files import write_corpus
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

FILES = ("few.en", "few.fr")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer, a recurrent translator the other way, each hardly trained, and twelve pairs with gold links."""
    folder = tmp_path_factory.mktemp("runs")
    write_corpus(folder, 200)
    for name in ("en", "fr", "align"):
        lines = (folder / f"train.{name}").read_text("utf-8").splitlines()[:12]
        (folder / f"few.{name}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    small = ["data.examples=100", "data.valid=10", "train.steps=2", "evaluate.every=2", "train.threads=1"]
    sizes = ["model.layers=2", "model.width=16", "model.heads=2", "model.feedforward_dim=16"]
    train(read_recipe("transformer", [*small, *sizes], tasks=TASKS), folder / "forth", notify=lambda text: None)
    sizes = ["model.width=8", "model.encoder_dim=8", "model.hidden=8", "data.direction=fr-en"]
    train(read_recipe("bahdanau", [*small, *sizes], tasks=TASKS), folder / "back", notify=lambda text: None)
    return folder


@pytest.fixture
def regard(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.chdir(runs)
        monkeypatch.setattr(sys, "argv", ["regard", "align", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


def links(out: str) -> list[set[tuple[int, int]]]:
    return [{(int(i), int(j)) for i, _, j in (one.partition("-") for one in line.split())} for line in out.split("\n")][
        :-1
    ]


def test_a_place_and_a_reading_are_chosen(regard) -> None:
    plain = regard("forth", *FILES)
    assert plain[0] == 0 and len(links(plain[1])) == 12
    assert regard("forth", *FILES, "--place", "decoder.1.cross")[1] == plain[1]  # the one that it tells of itself
    ways = [("--place", "decoder.0.cross"), ("--place", "decoder.1.cross/1"), ("--shift",), ("--weights", "norm")]
    others = [regard("forth", *FILES, *way) for way in ways]
    assert all(code == 0 and len(links(out)) == 12 for code, out, _ in others)
    assert len({plain[1], *(out for _, out, _ in others)}) > 3


def test_json_has_the_map_behind_the_links(regard) -> None:
    code, out, _ = regard("forth", *FILES, "--shift", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    for one in told:
        assert len(one["weights"]) == len(one["words"]["target"]) == len(one["text"].split())
        assert all(len(row) == len(one["source"].split()) for row in one["weights"])
        assert {j for _, j in one["links"]} == set(range(len(one["words"]["target"])))


def test_two_directions_become_one(runs: Path, regard) -> None:
    forth = regard("forth", *FILES)[1]
    back = regard("back", *reversed(FILES))[1]
    for method in ("intersection", "grow-diag-final-and"):
        both = regard("forth", *FILES, "--reverse", "back", "--symmetrize", method)[1]
        expected = [
            set(symmetrize(one, {(i, j) for j, i in other}, method))
            for one, other in zip(links(forth), links(back), strict=True)
        ]
        assert links(both) == expected
        (runs / "forth.txt").write_text(forth)
        (runs / "back.txt").write_text(back)
        again = regard("--links", "forth.txt", "--reverse", "back.txt", "--symmetrize", method)
        assert again[1] == both


def test_links_of_anyone_are_judged(regard) -> None:
    code, out, _ = regard("--links", "few.align", "--gold", "few.align")
    assert code == 0 and "AER 0.0%" in out
    _, out, _ = regard("forth", *FILES, "--gold", "few.align", "--json")
    told = json.loads(out)
    assert told["sentences"] == 12 and told["aer"] > 0.3  # it has hardly learned


def test_the_best_place_is_chosen_by_one_half_and_judged_by_the_other(regard) -> None:
    code, out, err = regard("forth", *FILES, "--gold", "few.align", "--place", "best")
    assert code == 0
    assert "decoder." in err and "first 6 pairs" in err
    assert "6 sentences" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("forth", "few.en"), "RUN, SOURCE and TARGET are required"),
        (("forth", *FILES, "--links", "few.align"), "Give either RUN or --links, not both"),
        (("forth", *FILES, "--place", "decoder.7.cross"), "decoder.7.cross"),
        (("forth", *FILES, "--place", "decoder.1.cross/9"), "got head 9, expected heads from 0 to 1"),
        (("forth", *FILES, "--place", "best"), "--gold"),
        (("forth", *FILES, "--symmetrize", "some"), "grow-diag"),
        (("--links", "few.align", "--gold", "train.align"), "few.align has 12 lines, but train.align has 200"),
        (("--links", "few.en", "--gold", "few.align"), "few.en:1"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], said: str, regard) -> None:
    code, _, err = regard(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
