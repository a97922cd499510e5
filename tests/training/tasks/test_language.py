"""The task language: text comes back as it was, line breaks and all, and what is random depends on the seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import CorpusError, StoreError
from regard.models.config import GPTConfig
from regard.text.corpora.raw_text import RawText
from regard.text.examples import IGNORED
from regard.training.recipe import TrainSettings
from regard.training.tasks.language import BlockBatches, BuiltInText, GPTModel, LanguageRecipe, RawTextFile
from regard.training.tasks.tokenizers import CharacterTokenizer, SizedTokenizer

PLAY = "FIRST:\nTo be …\n  or not.\n\nSECOND:\nThat is\tthe question.\n\n\nFIRST:\nThat …\n"
MODEL = GPTModel(layers=1, heads=2, width=8)
BATCHES = BlockBatches(sequence_length=8, rows=4)


def recipe(**sections) -> LanguageRecipe:
    usual = {"data": BuiltInText(examples=5, valid=2), "model": MODEL, "batches": BATCHES}
    return LanguageRecipe(name="test", **{**usual, **sections})


def play(path, text=PLAY):
    path.write_text(text, encoding="utf-8")
    return path


def whole(stream) -> list[int]:
    return stream.read(np.arange(len(stream))[None])[0].tolist()


@pytest.mark.parametrize("tokenizer", [CharacterTokenizer(), SizedTokenizer(kind="byte-bpe", size=270)])
def test_text_comes_back_as_it_was(tmp_path, tokenizer) -> None:
    data = RawTextFile(train=play(tmp_path / "play.txt"), valid=0.3)
    prepared = recipe(data=data, tokenizer=tokenizer).prepare(tmp_path / "run")
    decode = prepared.objective.tokenizer.decode
    train, valid = whole(prepared.train.plan.stream), whole(prepared.valid(0, 1).plan.stream)
    lines = PLAY.splitlines(keepends=True)
    assert decode(train) == "".join(lines[:7]) and decode(valid) == "".join(lines[7:])
    characters = sum(map(len, lines[7:]))
    assert prepared.objective.characters_per_token == pytest.approx(characters / (len(valid) - 1))


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=9), min_size=1))
def test_a_running_text_is_the_file(tmp_path_factory, lines) -> None:
    path = tmp_path_factory.mktemp("running") / "text.txt"
    text = "".join(line + "\n" for line in lines)
    path.write_bytes(text.encode())
    documents = list(RawText(path))
    assert "".join("".join(one.sentences) for one in documents) == text.removeprefix("\ufeff")
    assert "".join(RawText(path).lines()) == text.removeprefix("\ufeff")


def test_a_long_text_comes_in_portions(tmp_path) -> None:
    path = play(tmp_path / "long.txt", "".join(f"line {n}\n" for n in range(20_000)))
    documents = list(RawText(path))
    assert len(documents) > 2 and sum(len(one.sentences) for one in documents) == 20_000
    assert max(sum(map(len, one.sentences)) for one in documents) <= 1 << 16


def test_a_line_without_end_comes_in_pieces(tmp_path) -> None:
    text = "é" * 300_000 + "\r\nlast"
    path = play(tmp_path / "long.txt", text)
    assert "".join(RawText(path).lines()) == "é" * 300_000 + "\nlast\n"
    assert max(map(len, RawText(path).lines())) <= 1 << 16
    for size in range(1, 8):  # a line end is not cut in two
        short = play(tmp_path / "short.txt", "ab\r\n\r\nc\rd\r\n")
        assert "".join(RawText(short, max_line=size).lines()) == "ab\n\nc\rd\n"
    (tmp_path / "bad.txt").write_bytes(b"one\ntwo \xff\n")
    with pytest.raises(CorpusError, match=r"bad\.txt:2: The line is not valid UTF-8"):
        list(RawText(tmp_path / "bad.txt"))
    with pytest.raises(CorpusError, match="The file is empty"):
        list(RawText(play(tmp_path / "empty.txt", "")))


def test_stories_are_closed_one_by_one(tmp_path) -> None:
    prepared = recipe(data=BuiltInText(examples=3, valid=1)).prepare(tmp_path)
    tokenizer = prepared.objective.tokenizer
    stream = prepared.train.plan.stream
    assert whole(stream).count(tokenizer.special.end) == 4
    stories = tokenizer.decode(whole(stream), specials=True).split("</s>")[1:-1]
    assert len(stories) == 3 and all(story.endswith(".\n") and " ." not in story for story in stories)
    apart = recipe(data=BuiltInText(view="document", examples=3, valid=1)).prepare(tmp_path / "apart")
    assert " ." in apart.objective.tokenizer.decode(whole(apart.train.plan.stream))


@pytest.mark.parametrize("view", ["document", "document_french", "prose", "prose_french"])
def test_it_can_be_trained_as_it_is(tmp_path, view) -> None:
    prepared = recipe(data=BuiltInText(view=view, examples=5, valid=2)).prepare(tmp_path)
    batch = next(iter(prepared.train))
    assert batch.inputs.shape == (4, 8) and batch.documents is not None
    prepared.objective.loss(prepared.model, batch, None).total.backward()
    assert all(weight.grad is not None for weight in prepared.model.parameters())
    assert prepared.notes[0].endswith(f"a vocabulary of {len(prepared.objective.tokenizer)}")


def test_every_held_out_token_is_measured_once(tmp_path) -> None:
    prepared = recipe().prepare(tmp_path)
    stream = prepared.valid(0, 1).plan.stream
    for _ in range(2):
        assert sum(int((batch.targets != IGNORED).sum()) for batch in prepared.valid(0, 1)) == len(stream) - 1
    parts = [prepared.valid(rank, 3) for rank in range(3)]
    assert sum(batch.tokens for part in parts for batch in part) == len(stream) - 1


def test_the_same_recipe_gives_the_same_of_everything(tmp_path) -> None:
    data = RawTextFile(train=play(tmp_path / "play.txt"))
    one = recipe(data=data).prepare(tmp_path / "a")
    at_first, first = one.train.state_dict(), next(iter(one.train))
    torch.manual_seed(7)
    for other in (recipe(data=data).prepare(tmp_path / "b"), recipe(data=data).prepare(tmp_path / "a")):
        for name, weight in one.model.state_dict().items():
            assert torch.equal(weight, other.model.state_dict()[name]), name
        assert other.train.state_dict() == at_first
        assert torch.equal(next(iter(other.train)).inputs, first.inputs)
    assert one.recipe == recipe(data=data)
    assembled = one.recipe.assemble(tmp_path / "a")
    assert all(map(torch.equal, assembled.state_dict().values(), one.model.state_dict().values()))
    seeded = recipe(data=data, train=TrainSettings(seed=1)).prepare(tmp_path / "a")
    assert not torch.equal(seeded.model.embedding.weight, one.model.embedding.weight)


def test_files_are_mapped_and_a_changed_one_is_refused(tmp_path) -> None:
    data = RawTextFile(train=play(tmp_path / "play.txt"), valid=play(tmp_path / "held.txt", "FIRST:\nWell.\n"))
    prepared = recipe(data=data).prepare(tmp_path / "run")
    assert hasattr(prepared.train.plan.stream.ids.base, "flush") or prepared.train.plan.stream.ids.base is not None
    assert sorted(path.name for path in (tmp_path / "run" / "data").iterdir()) == ["train.store", "valid.store"]
    play(tmp_path / "held.txt", "FIRST:\nWell!\n")
    with pytest.raises(StoreError, match=r"held\.txt has changed since the store was built"):
        recipe(data=data).prepare(tmp_path / "run")


def test_without_validation_there_is_none(tmp_path) -> None:
    for data in (BuiltInText(examples=3, valid=0), RawTextFile(train=play(tmp_path / "play.txt"), valid=0.0)):
        prepared = recipe(data=data).prepare(tmp_path / data.kind)
        assert prepared.valid is None and "none for validation" in prepared.notes[0]
        assert 0.5 < prepared.objective.characters_per_token <= 1.1


def test_a_line_of_any_length_is_trained_on(tmp_path) -> None:
    path = play(tmp_path / "play.txt", PLAY + "xy" * 600_000 + "\n")
    prepared = recipe(data=RawTextFile(train=path)).prepare(tmp_path / "run")
    assert not any("skipped" in note for note in prepared.notes)
    streams = (whole(prepared.train.plan.stream), whole(prepared.valid(0, 1).plan.stream))
    found = "".join(prepared.objective.tokenizer.decode(one) for one in streams)
    assert found.count("xy") == 600_000
    with pytest.raises(CorpusError, match=r"a share of 0\.1"):
        recipe(data=RawTextFile(train=play(path, "one line"))).prepare(tmp_path / "other")


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_every_kind_of_position_makes_a_model(positions) -> None:
    model = GPTConfig(vocabulary=5, max_positions=6, layers=1, heads=2, width=8, positions=positions).build()
    assert model(torch.tensor([[1, 2, 3, 4, 0, 1]])).shape == (1, 6, 5)
    assert any("positions" in name for name, _ in model.named_parameters()) == (positions == "learned")
