"""The task contextual and its objective: losses by hand, ranks that add up, words by their letters, files of lines."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
import torch

from regard.errors import CorpusError
from regard.models.char_cnn import CharCNN, WordTable
from regard.text.batches.batch import PlainBatch
from regard.training.objectives.bilm import BiLMObjective, neighbour_targets
from regard.training.recipe import PreparedTask, TrainSettings
from regard.training.tasks.contextual import (
    BuiltInSentences,
    ContextualBatches,
    ContextualRecipe,
    ElmoModel,
    SentenceFile,
)
from regard.training.tasks.tokenizers import SizedTokenizer

SMALL = BuiltInSentences(examples=30, valid=10)
LINES = ["the cat sees Yellen", "", "a dog", "the dog sees a cat", "the cat", "Möbius sees"]


def recipe(**sections) -> ContextualRecipe:
    plain = {
        "data": SMALL,
        "tokenizer": SizedTokenizer(size=60),
        "model": ElmoModel(width=8, input="characters", dropout=0.0),
    }
    return ContextualRecipe(name="test", **{**plain, **sections})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> PreparedTask:
    made = recipe(train=TrainSettings(prefetch=0)).prepare(tmp_path_factory.mktemp("run"))
    made.model.eval()
    return made


@pytest.fixture(scope="module")
def batch(prepared) -> PlainBatch:
    return max(prepared.train, key=len)


def test_neighbours_are_those_of_the_row() -> None:
    after, before = neighbour_targets(torch.tensor([[4, 5, 6, 0], [7, 8, 9, 3]]), torch.tensor([3, 4]))
    assert after.tolist() == [[5, 6, -100, -100], [8, 9, 3, -100]]
    assert before.tolist() == [[-100, 4, 5, -100], [-100, 7, 8, 9]]


def test_the_loss_is_the_mean_of_both_surprises(prepared, batch) -> None:
    objective, model = prepared.objective, prepared.model
    size, unknown = len(objective.tokenizer), objective.tokenizer.special.unknown
    after, before = (
        one.detach().double().log_softmax(-1) for one in model(batch.inputs, batch.lengths, batch.spellings)
    )
    ids = [[number if number < size else unknown for number in row] for row in batch.inputs.tolist()]
    forward = backward = 0.0
    for row, length in enumerate(batch.lengths.tolist()):
        for place in range(1, length):
            forward -= float(after[row, place - 1, ids[row][place]])
            backward -= float(before[row, place, ids[row][place - 1]])
    total = objective.loss(model, batch, None).total
    assert total.item() == pytest.approx((forward + backward) / 2, rel=1e-5)
    with torch.no_grad():
        sums = objective.measure(model, batch, None).sums
    assert {value.dtype for value in sums.values()} == {torch.float64}
    found = objective.summary(sums)
    assert found == pytest.approx(
        {
            "loss": (forward + backward) / 2 / batch.tokens,
            "perplexity": exp((forward + backward) / 2 / batch.tokens),
            "forward_perplexity": exp(forward / batch.tokens),
            "backward_perplexity": exp(backward / batch.tokens),
        },
        rel=1e-5,
    )
    assert set(found) == set(objective.metrics)


def test_smoothing_is_trained_and_not_measured(prepared, batch) -> None:
    model, smooth = prepared.model, replace(prepared.objective, label_smoothing=0.2)
    assert smooth.loss(model, batch, None).total != prepared.objective.loss(model, batch, None).total
    with torch.no_grad():
        assert torch.equal(*(one.measure(model, batch, None).sums["nll"] for one in (smooth, prepared.objective)))


def test_ranks_add_up_to_one(prepared, batch, tmp_path) -> None:
    objective, collate = prepared.objective, prepared.train.collate
    whole = objective.loss(prepared.model, batch, None).total
    indices = batch.indices.numpy()
    parts = [collate(indices[rank::3], None) for rank in range(3)]
    torch.testing.assert_close(sum(objective.loss(prepared.model, one, None).total for one in parts), whole)
    assert sum(one.tokens for one in parts) == batch.tokens == collate.tokens(indices, None)


def test_no_rows_give_zero_everywhere(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    empty = prepared.train.collate(np.array([], dtype=np.int64), None)
    model.zero_grad()
    total = objective.loss(model, empty, None).total
    total.backward()
    assert total.item() == 0
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())
    with torch.no_grad():
        sums = objective.measure(model, empty, None).sums
    assert not any(value.any() for value in sums.values())
    assert list(objective.outputs(model, empty)) == []
    assert np.isnan(objective.summary(sums)["loss"])
    assert objective.text_metrics([]) == {}


def test_samples_are_what_both_directions_agree_on(prepared, batch) -> None:
    objective, model = prepared.objective, prepared.model
    after, before = (one.log_softmax(-1) for one in model(batch.inputs, batch.lengths, batch.spellings))
    row = int(batch.lengths.argmin())
    length = int(batch.lengths[row])
    guesses = [(after[row, at - 1] + before[row, at + 1]).argmax().item() for at in range(1, length - 1)]
    output = objective.outputs(model, batch)[row]
    assert output.index == batch.indices[row]
    pieces = [objective.tokenizer.token(number).removeprefix("▁") for number in guesses]
    assert output.got.split() == pieces
    assert len(output.given.split()) == length - 2


def test_letters_are_read_in_the_place_of_unknown_words(prepared, batch) -> None:
    """Two names that the vocabulary does not have are the same to a table of words, and two to letters."""
    size = len(prepared.objective.tokenizer)
    assert batch.spellings is not None and len(batch.spellings) and int(batch.inputs.max()) >= size
    changed = replace(batch, spellings=batch.spellings.flip(0))
    one, two = (prepared.objective.loss(prepared.model, each, None).total for each in (batch, changed))
    assert one != two
    assert isinstance(prepared.model.encoder.words, CharCNN)


def test_the_same_recipe_gives_the_same_of_everything(tmp_path) -> None:
    one, two = (recipe().prepare(tmp_path / name) for name in "ab")
    assembled = one.recipe.assemble(tmp_path / "a")
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, two.model.state_dict()[name]) and torch.equal(weight, assembled.state_dict()[name])
    first = [next(iter(each.train)) for each in (one, two)]
    assert torch.equal(first[0].inputs, first[1].inputs)
    assert one.notes[0].startswith("30 training texts, 10 for validation; a vocabulary of 60")
    assert sum(len(batch) for batch in one.valid(0, 1)) == 10


@pytest.mark.parametrize("view", ["sentence_french", "document", "document_french"])
def test_other_views(view, tmp_path) -> None:
    made = recipe(data=BuiltInSentences(view=view, examples=5, valid=0), model=ElmoModel(width=4)).prepare(tmp_path)
    assert made.valid is None and isinstance(made.model.encoder.words, WordTable)
    assert next(iter(made.train)).spellings is None
    assert len(set(recipe(data=BuiltInSentences(view=view, examples=5)).data.training())) >= 5


def test_a_file_is_read_a_line_a_row(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    data = SentenceFile(train=path, valid=0.4)
    assert list(data.training()) == ["the cat sees Yellen", "a dog", "the dog sees a cat"]
    made = recipe(data=data).prepare(tmp_path / "run")
    assert made.notes[0].startswith("3 training texts, 2 for validation")
    held = [output.given for batch in made.valid(0, 1) for output in made.objective.outputs(made.model, batch)]
    assert sorted(held) == ["<unk> sees", "the cat"]
    assert isinstance(made.objective, BiLMObjective)
    other = recipe(data=SentenceFile(train=path, valid=path)).prepare(tmp_path / "other")
    assert other.notes[0].startswith("5 training texts, 5 for validation")
    with pytest.raises(CorpusError, match="leaves none to train on"):
        recipe(data=SentenceFile(train=path, valid=0.99)).prepare(tmp_path / "none")


def test_texts_are_cut_where_the_recipe_says(tmp_path) -> None:
    made = recipe(batches=ContextualBatches(max_length=6)).prepare(tmp_path)
    assert "cut to 6 tokens" in made.notes[1]
    assert max(batch.inputs.size(1) for batch in made.train) == 6


def test_it_learns(tmp_path) -> None:
    made = recipe(model=ElmoModel(width=16, dropout=0.0)).prepare(tmp_path)
    batch = max(made.train, key=len)
    optimiser = torch.optim.AdamW(made.model.parameters(), 0.02)
    losses = []
    for _ in range(50):
        optimiser.zero_grad()
        loss = made.objective.loss(made.model, batch, None).total / batch.tokens
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
