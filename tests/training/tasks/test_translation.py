"""The task "translation": every decoder learns, unseen words are copied, and mistakes are answered in words."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.decoding.greedy import Greedy
from regard.errors import RegardError, SettingError
from regard.inspection.alignment.links import word_map
from regard.runs import Run
from regard.text.tokenizers.oov import oov_id
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.tasks.translation import TranslationRecipe
from regard.training.train_run import train

ENGLISH = "one two three four five six seven eight nine ten".split()
FRENCH = "un deux trois quatre cinq six sept huit neuf dix".split()
NAMES = [first + last for first in ("Bar", "Cal", "Dor", "Fal") for last in ("din", "mond", "vel", "zac", "rot", "net")]


def corpus(folder: Path, pairs: int = 400, names: bool = False) -> Path:
    """Numbers in order, each in the other language; perhaps with a name, which is the same in both."""
    chance = torch.Generator().manual_seed(0)
    lines: tuple[list[str], list[str]] = ([], [])
    for at in range(pairs):
        numbers = torch.randint(10, (3 + at % 4,), generator=chance).tolist()
        place = int(torch.randint(len(numbers), (), generator=chance)) if names else -1
        for words, side in zip((ENGLISH, FRENCH), lines, strict=True):
            said = [NAMES[at % len(NAMES)] if number == place else words[n] for number, n in enumerate(numbers)]
            side.append(" ".join(said))
    for ending, side in zip(("en", "fr"), lines, strict=True):
        (folder / f"train.{ending}").write_text("\n".join(side) + "\n", encoding="utf-8")
    return folder


def recipe(folder: Path, *sets: str, **model: Any) -> TranslationRecipe:
    small = {"width": 16, "encoder_dim": 32, "hidden": 32, **model}
    given = [
        "data.kind=parallel",
        f"data.source={folder / 'train.en'}",
        f"data.target={folder / 'train.fr'}",
        "data.valid=0.1",
        *(f"model.{name}={str(value).lower()}" for name, value in small.items()),
        *(
            "batches.tokens=200",
            "train.steps=220",
            "train.threads=1",
            "schedule.warmup=20",
            "optimiser.learning_rate=6e-3",
        ),
        *("evaluate.every=220", "evaluate.generations=40", "checkpoint.every=220", *sets),
    ]
    found = read_recipe("bahdanau", given, tasks=TASKS)
    assert isinstance(found, TranslationRecipe)
    return found


KINDS: dict[str, dict[str, Any]] = {
    "bottleneck": {"kind": "bottleneck", "hidden": 64},
    "bahdanau": {"kind": "bahdanau"},
    "dot": {"kind": "luong", "score": "dot", "input_feeding": False},
    "bilinear, fed": {"kind": "luong", "score": "bilinear"},
    "concat": {"kind": "luong", "score": "concat", "input_feeding": False},
    "local-m": {"kind": "luong", "window": "local-m", "half_width": 2, "input_feeding": False},
    "local-p, fed": {"kind": "luong", "window": "local-p", "half_width": 3},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_decoder_learns_to_translate(name: str, tmp_path: Path) -> None:
    steps = 500 if name == "bottleneck" else 400  # one vector for all is the hard way
    given = recipe(corpus(tmp_path), f"train.steps={steps}", f"evaluate.every={steps}", **KINDS[name])
    ended = train(given, tmp_path / "run", notify=lambda text: None)
    assert ended.metrics["perplexity"] < (3 if name == "bottleneck" else 1.5)  # among ten words
    assert name == "bottleneck" or ended.metrics["bleu"] > 50


def test_a_pointer_says_names_that_it_has_never_seen(tmp_path: Path) -> None:
    size = 7 + len(ENGLISH + FRENCH)  # special tokens, and the numbers alone
    sets = ["target_tokenizer=none", f"tokenizer.size={size}", "train.steps=350", "model.coverage=false"]
    given = recipe(corpus(tmp_path, names=True), *sets, kind="pointer")
    train(given, tmp_path / "run", notify=lambda text: None)
    use = Run.open(tmp_path / "run").translator()
    assert not any(name in use.source.encode(name).pieces for name in NAMES)
    strangers = ["Quixbert", "Wolfing", "Yarmouth"]
    found = use([f"two {name} seven" for name in strangers], Greedy())
    assert [best.text.split()[1] for [best] in found] == strangers
    [read] = use.score([("two Quixbert seven", "deux Quixbert sept")])
    [other] = use.score([("two Quixbert seven", "deux Wolfing sept")])
    assert other.score < read.score


def test_what_a_run_keeps_is_enough_to_use_it(tmp_path: Path) -> None:
    given = recipe(corpus(tmp_path), "train.steps=3", "evaluate.every=3")
    train(given, tmp_path / "run", notify=lambda text: None)
    for name in ("train.en", "train.fr"):
        (tmp_path / name).unlink()
    assert isinstance(Run.open(tmp_path / "run").model(), torch.nn.Module)
    [[best]] = Run.open(tmp_path / "run").translator()(["one two three"])
    assert isinstance(best.text, str)
    assert {"tokenizer.json", "target-tokenizer.json"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_another_target_tokenizer_is_another_run(tmp_path: Path) -> None:
    from regard.training.train_run import load_recipe

    given = recipe(corpus(tmp_path), "train.steps=3", "evaluate.every=3")
    train(given, tmp_path / "run", notify=lambda text: None)
    with pytest.raises(SettingError, match="target_tokenizer"):
        load_recipe(tmp_path / "run", ["target_tokenizer.size=9"])


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["model.kind=pointer", "target_tokenizer.kind=words"], "one vocabulary"),
        (["model.kind=luong", "model.score=dot", "model.hidden=30"], "one width"),
        (["model.kind=luong", "model.window=local"], "local-m"),
        (["model.kind=bahdanu"], "bahdanau"),
    ],
)
def test_mistakes_are_answered_in_words(sets: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=said):
        recipe(corpus(tmp_path), *sets).prepare(tmp_path / "run")


def test_unknown_words_have_one_number_on_both_sides(tmp_path: Path) -> None:
    given = recipe(corpus(tmp_path, names=True), "target_tokenizer=none", "tokenizer.size=27", kind="pointer")
    prepared = given.prepare(tmp_path / "run")
    batch = next(iter(prepared.train))
    outside = (batch.source >= 27).any(1)
    assert outside.all()
    for row in range(len(batch)):
        source, target = (set(ids[ids >= 27].tolist()) for ids in (batch.source[row], batch.target_out[row]))
        assert source == target <= {oov_id(name, 27) for name in NAMES}


def test_the_other_way_round_turns_pairs_and_links() -> None:
    from regard.training.tasks.translation.data import BuiltInPairs

    there, back = (next(BuiltInPairs(direction=way).generate("test", 1)) for way in ("en-fr", "fr-en"))
    assert (there.source, there.target) == (back.target, back.source)
    assert {(j, i) for i, j in there.links or ()} == set(back.links or ())


def test_an_unknown_word_that_is_written_is_shown_in_its_place(tmp_path: Path) -> None:
    train(recipe(corpus(tmp_path), "train.steps=3", "evaluate.every=3"), tmp_path / "run", notify=lambda text: None)
    use = Run.open(tmp_path / "run").translator()
    unknown = use.target.special.need("unknown")
    rules = use.rules(max_length=3, min_length=3, prefix=[[unknown]])
    [[best]] = use(["one two three"], rules=rules, attention=True)
    assert best.text.split()[0] == "<unk>"
    assert len(best.text.split()) == len(best.tokens) == 3
    assert word_map(use, best).shape == (3, 3)


def test_a_sentence_that_fits_no_batch_is_told_in_the_words_of_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"A text has 7 tokens, and batches.tokens = 5.*batches.max_length = 5"):
        train(recipe(corpus(tmp_path), "batches.tokens=5"), tmp_path / "run", notify=lambda text: None)
    cut = recipe(corpus(tmp_path), "batches.tokens=5", "batches.max_length=5", "train.steps=1", "evaluate.every=1")
    train(cut, tmp_path / "cut", notify=lambda text: None)
