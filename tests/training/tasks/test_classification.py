"""The task classification: the same recipe gives the same of everything, and what does not fit is refused in words."""

import json

import pytest
import torch
from pydantic import ValidationError

from regard.errors import CorpusError, SettingError, StoreError
from regard.models.config import PoolingClassifierConfig
from regard.models.config.names import SCORES
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordLevel
from regard.training.recipe import TrainSettings
from regard.training.tasks import TASKS
from regard.training.tasks.classification import (
    BuiltInLabelled,
    ClassificationBatches,
    ClassificationRecipe,
    LabelTable,
    PoolingModel,
)
from regard.training.tasks.tokenizers import SizedTokenizer, TokenizerFile, WordPieceTokenizer

SMALL = BuiltInLabelled(examples=40, valid=10)
MODEL = PoolingModel(width=8)
ROWS = [("fine work", "good"), ("bad work", "bad"), ("so so", "fair"), ("so fine", "good"), ("so bad", "bad")]


def recipe(**sections) -> ClassificationRecipe:
    return ClassificationRecipe(name="test", **{"data": SMALL, "model": MODEL, **sections})


def table(path, rows=ROWS):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def examples_of(batches) -> list[int]:
    return [index for batch in batches for index in batch.indices.tolist()]


def test_tasks_go_by_the_name_that_their_recipes_bear() -> None:
    assert {name: kind(name="x").task for name, kind in TASKS.items()} == {name: name for name in TASKS}
    assert TASKS["classification"] is ClassificationRecipe


def test_it_can_be_trained_as_it_is(tmp_path) -> None:
    prepared = recipe().prepare(tmp_path)
    batch = next(iter(prepared.train))
    prepared.objective.loss(prepared.model, batch, None).total.backward()
    assert all(weight.grad is not None for weight in prepared.model.parameters())
    assert prepared.notes == ("40 training examples, 10 for validation; negative, positive",)
    assert sum(len(batch) for batch in prepared.valid(0, 1)) == 10


def test_the_same_recipe_gives_the_same_of_everything(tmp_path) -> None:
    chance = torch.get_rng_state()
    one, two = (recipe().prepare(tmp_path / name) for name in ("a", "b"))
    assert torch.equal(torch.get_rng_state(), chance)
    torch.manual_seed(1)  # what the global state is changes nothing
    again = recipe().prepare(tmp_path / "a")  # now the tokenizer is there already
    for other in (two, again):
        assert other.objective.tokenizer.fingerprint == one.objective.tokenizer.fingerprint
        for name, weight in one.model.state_dict().items():
            assert torch.equal(weight, other.model.state_dict()[name]), name
    first = [next(iter(each.train)) for each in (one, two, again)]
    assert all(torch.equal(batch.inputs, first[0].inputs) for batch in first)
    other = recipe(train=TrainSettings(seed=1)).prepare(tmp_path / "a")
    assert not torch.equal(other.model.embedding.weight, one.model.embedding.weight)


def test_validation_is_the_same_each_time(tmp_path) -> None:
    prepared = recipe(train=TrainSettings(prefetch=0)).prepare(tmp_path)
    first, second = (examples_of(prepared.valid(0, 1)) for _ in range(2))
    assert first == second and sorted(first) == list(range(10))


def test_ranks_share_the_batches(tmp_path) -> None:
    whole = recipe().prepare(tmp_path)
    parts = [recipe().prepare(tmp_path, rank, 2) for rank in range(2)]
    for batch, *shares in zip(whole.train, *(part.train for part in parts), strict=True):
        assert sorted(examples_of([batch])) == sorted(examples_of(shares))
    assert sorted(examples_of([*whole.valid(0, 2), *whole.valid(1, 2)])) == list(range(10))
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), parts[1].model.parameters(), strict=True))


def test_labels_are_filled_in_from_the_training_rows(tmp_path) -> None:
    data = LabelTable(train=table(tmp_path / "t.tsv"), valid=0.4)
    prepared = recipe(data=data).prepare(tmp_path / "run")
    assert prepared.recipe.data.labels == ["bad", "fair", "good"]
    assert prepared.recipe == recipe(data=data.model_copy(update={"labels": ["bad", "fair", "good"]}))
    assert prepared.notes[0].startswith("3 training examples, 2 for validation")
    texts = {one.given for batch in prepared.valid(0, 1) for one in prepared.objective.outputs(prepared.model, batch)}
    assert texts == {"so bad", "so fine"} or texts == {"so", "so fine"}  # the last rows; "bad" may be unknown
    assert prepared.model.classes.out_features == 3
    assembled = prepared.recipe.assemble(tmp_path / "run")
    assert all(map(torch.equal, assembled.state_dict().values(), prepared.model.state_dict().values()))
    with pytest.raises(SettingError, match="recipe does not list its labels"):
        recipe(data=data).assemble(tmp_path / "run")
    resumed = prepared.recipe.prepare(tmp_path / "run")
    assert resumed.recipe == prepared.recipe


def test_the_tokenizer_learns_from_the_training_rows_alone(tmp_path) -> None:
    rows = [*ROWS[:3], ("unheard", "good")]
    prepared = recipe(data=LabelTable(train=table(tmp_path / "t.tsv", rows), valid=0.25)).prepare(tmp_path / "run")
    tokenizer = prepared.objective.tokenizer
    assert tokenizer.encode("unheard").ids == [tokenizer.special.unknown]
    assert tokenizer.encode("work").ids != [tokenizer.special.unknown]


def test_a_second_file_for_validation_and_two_texts(tmp_path) -> None:
    for name, count in (("t", 6), ("v", 3)):
        rows = [{"a": f"text {n}", "b": f"other {n}", "y": n % 2} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = LabelTable(train=tmp_path / "t.jsonl", valid=tmp_path / "v.jsonl", text="a", text_pair="b", label="y")
    prepared = recipe(data=data, tokenizer=WordPieceTokenizer(size=60)).prepare(tmp_path / "run")
    batch = next(iter(prepared.train))
    assert batch.segments.any() and sum(map(len, prepared.valid(0, 1))) == 3
    outputs = prepared.objective.outputs(prepared.model, batch)
    assert outputs[0].given == f"text {outputs[0].index} other {outputs[0].index}"


def test_a_changed_file_is_refused(tmp_path) -> None:
    data = LabelTable(train=table(tmp_path / "t.tsv"), valid=0.4)
    recipe(data=data).prepare(tmp_path / "run")
    table(tmp_path / "t.tsv", [*ROWS, ("new", "good")])
    with pytest.raises(StoreError, match=r"t\.tsv has changed since the store was built"):
        recipe(data=data).prepare(tmp_path / "run")


def test_another_share_needs_no_other_store(tmp_path) -> None:
    path = table(tmp_path / "t.tsv")
    for share, counts in ((0.4, (3, 2)), (0.2, (4, 1)), (0.0, (5, 0))):
        data = LabelTable(train=path, valid=share, labels=["bad", "fair", "good"])
        prepared = recipe(data=data).prepare(tmp_path / "run")
        held = 0 if prepared.valid is None else sum(map(len, prepared.valid(0, 1)))
        assert (sum(map(len, prepared.train)), held) == counts
    assert [path.name for path in (tmp_path / "run" / "data").iterdir()] == ["train.store"]


def test_labels_that_do_not_fit_are_refused(tmp_path) -> None:
    late = table(tmp_path / "late.tsv", [*ROWS, ("so late", "goood")])
    with pytest.raises(CorpusError, match=r"late\.tsv:7: .*no label 'goood'. Did you mean 'good'"):
        recipe(data=LabelTable(train=late, valid=0.1)).prepare(tmp_path / "a")
    one = table(tmp_path / "one.tsv", [("a", "x"), ("b", "x"), ("c", "x")])
    with pytest.raises(SettingError, match="The labels are x: two different ones or more"):
        recipe(data=LabelTable(train=one)).prepare(tmp_path / "b")
    with pytest.raises(CorpusError, match=r"one\.tsv: Of 1 examples a share of 0\.1 is held out"):
        recipe(data=LabelTable(train=table(tmp_path / "one.tsv", ROWS[:1]))).prepare(tmp_path / "c")


def test_blank_rows_and_long_texts_are_told(tmp_path) -> None:
    rows = [*ROWS, (" ", "good"), ("so " * 20, "good")]
    data = LabelTable(train=table(tmp_path / "t.tsv", rows), valid=0.0)
    prepared = recipe(data=data, batches=ClassificationBatches(max_length=10)).prepare(tmp_path / "run")
    assert prepared.notes[0] == "6 training examples, none for validation; bad, fair, good"
    assert prepared.notes[1] == "1 training examples cut to 10 tokens"
    assert prepared.notes[2].startswith("1 skipped, such as ") and "t.tsv:7" in prepared.notes[2]
    assert max(batch.inputs.size(1) for batch in prepared.train) == 10


def test_a_saved_tokenizer_of_another_size_is_refused(tmp_path) -> None:
    prepared = recipe(tokenizer=SizedTokenizer(size=50)).prepare(tmp_path)
    size = len(prepared.objective.tokenizer)
    assert prepared.model.embedding.num_embeddings == size <= 50
    with pytest.raises(SettingError, match=rf"a tokenizer of {size} tokens, more than the 20 of the recipe"):
        recipe(tokenizer=SizedTokenizer(size=20)).prepare(tmp_path)


def test_a_tokenizer_from_a_file(tmp_path) -> None:
    given, other = tmp_path / "mine.json", tmp_path / "other.json"
    Tokenizer.train(WordLevel(30), ["the film was good", "the meal was bad"]).save(given)
    Tokenizer.train(WordLevel(30), ["the film was good"]).save(other)
    prepared = recipe(tokenizer=TokenizerFile(path=given)).prepare(tmp_path / "run")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == given.read_bytes()
    assert prepared.model.embedding.num_embeddings == len(Tokenizer.load(given))
    with pytest.raises(SettingError, match="the recipe names another one"):
        recipe(tokenizer=TokenizerFile(path=other)).prepare(tmp_path / "run")


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("encoder", ["none", "birnn"])
def test_every_score_makes_a_model(score, encoder) -> None:
    model = PoolingClassifierConfig(vocabulary=20, classes=2, width=8, score=score, encoder=encoder).build()
    assert model(torch.tensor([[1, 2, 3]]), torch.tensor([3])).shape == (1, 2)
    assert (model.encoder is None) == (encoder == "none")


def test_misspelt_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="exmples"):
        BuiltInLabelled(exmples=3)
    with pytest.raises(ValidationError, match="scaled-dot"):
        PoolingModel(score="scaled")


def test_words_may_begin_small_and_states_have_a_width_and_a_cell_of_their_own() -> None:
    torch.manual_seed(0)
    plain = PoolingClassifierConfig(
        vocabulary=20, classes=2, width=8, encoder="position-wise", score="additive"
    ).build()
    torch.manual_seed(0)
    small = PoolingClassifierConfig(
        vocabulary=20, classes=2, width=8, encoder="position-wise", score="additive", embedding_std=0.25
    ).build()
    assert torch.equal(small.embedding.weight, plain.embedding.weight * 0.25)
    assert (
        PoolingClassifierConfig(
            vocabulary=20, classes=2, width=8, encoder="position-wise", encoder_dim=6, score="additive"
        )
        .build()
        .classes.in_features
        == 6
    )
    assert isinstance(
        PoolingClassifierConfig(vocabulary=20, classes=2, width=8, cell="lstm", encoder_dim=4)
        .build()
        .encoder.forward_rnn,
        torch.nn.LSTM,
    )
    with pytest.raises(SettingError, match="the width of the embeddings, 8"):
        PoolingClassifierConfig(vocabulary=20, classes=2, width=8, encoder="none", encoder_dim=6).build()
