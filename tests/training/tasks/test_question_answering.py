"""The task answering and its objective: losses by hand, the best stretch, answers that are found."""

import json

import numpy as np
import pytest
import torch

from regard.models.bert_heads import SpanLogits
from regard.training.objectives.qa import best_span
from regard.training.recipe import PreparedTask, TrainSettings
from regard.training.tasks.question_answering import (
    AnsweringBatches,
    AnsweringRecipe,
    BertSpanModel,
    BuiltInQuestions,
    QuestionTable,
)
from regard.training.tasks.tokenizers import SizedTokenizer

MODEL = BertSpanModel(layers=1, width=8, heads=2, dropout=0.0)


def recipe(**sections) -> AnsweringRecipe:
    own = {"data": BuiltInQuestions(examples=20, valid=6), "tokenizer": SizedTokenizer(size=400), "model": MODEL}
    return AnsweringRecipe(name="test", **{**own, "train": TrainSettings(prefetch=0), **sections})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> PreparedTask:
    made = recipe().prepare(tmp_path_factory.mktemp("run"))
    made.model.eval()
    return made


def test_the_loss_is_the_mean_surprise_of_both_ends(prepared) -> None:
    objective, model, batch = prepared.objective, prepared.model, next(iter(prepared.valid(0, 1)))
    with torch.no_grad():
        said = model(batch.inputs, batch.lengths, batch.segments)
        found = objective.summary(objective.measure(model, batch, None).sums)
    total = exact = f1 = 0.0
    for row, (first, last) in enumerate(zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)):
        starts, ends = (logits[row].double() for logits in said)
        total -= float(starts.log_softmax(0)[first] + ends.log_softmax(0)[last]) / 2
        pairs = [(float(starts[a] + ends[b]), a, b) for a in range(len(starts)) for b in range(a, len(ends))]
        _, start, end = max(pairs)
        exact += (start, end) == (first, last)
        shared = len(set(range(start, end + 1)) & set(range(first, last + 1)))
        f1 += 2 * shared / (end - start + 1 + last - first + 1)
    assert objective.loss(model, batch, None).total.item() == pytest.approx(total, rel=1e-5)
    expected = {"loss": total / len(batch), "exact": exact / len(batch), "f1": f1 / len(batch)}
    assert found == pytest.approx(expected, rel=1e-5) and set(found) == set(objective.metrics)


def test_the_best_stretch_is_short_enough_and_does_not_end_before_it_begins() -> None:
    start, end = torch.tensor([[0.0, 0, 5, 0, 1]]), torch.tensor([[8.0, 0, 0, 0, 4]])
    for longest, expected in ((5, (2, 4)), (2, (0, 0)), (1, (0, 0))):
        found = best_span(SpanLogits(start, end), longest)
        assert tuple(int(one) for one in found) == expected


def test_no_rows_give_zero_everywhere(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    empty = prepared.train.collate(np.array([], dtype=np.int64), None)
    model.zero_grad()
    total = objective.loss(model, empty, None).total
    total.backward()
    assert total.item() == 0
    assert all(one.grad is None or not one.grad.any() for one in model.parameters())
    assert all((one.grad is not None) == one.requires_grad for one in model.parameters())
    with torch.no_grad():
        sums = objective.measure(model, empty, None).sums
    assert not any(value.any() for value in sums.values())
    assert list(objective.outputs(model, empty)) == [] and np.isnan(objective.summary(sums)["loss"])


def test_it_learns_to_point(tmp_path) -> None:
    """What is asked says which word of the passage answers, wherever it stands."""
    path, order = tmp_path / "train.jsonl", np.random.default_rng(0)
    rows = []
    for _ in range(64):
        passage = " ".join(order.permutation(["red", "tall", "slow"]))
        asked, answer = ("colour", "red") if order.random() < 0.5 else ("size", "tall")
        rows.append({"question": asked, "passage": passage, "start": passage.index(answer), "end": answer})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = BertSpanModel(layers=2, width=32, heads=2, dropout=0.0)
    made = recipe(data=QuestionTable(train=path, valid=path), model=model).prepare(tmp_path / "run")
    assert made.notes[0] == "64 training questions, 64 for validation"
    optimiser = torch.optim.AdamW(made.model.parameters(), 3e-3)
    for _ in range(60):
        for batch in made.train:
            optimiser.zero_grad()
            (made.objective.loss(made.model, batch, None).total / len(batch)).backward()
            optimiser.step()
    with torch.no_grad():
        sums = [made.objective.measure(made.model, batch, None).sums for batch in made.valid(0, 1)]
        outputs = [one for batch in made.valid(0, 1) for one in made.objective.outputs(made.model, batch)]
    found = made.objective.summary({name: sum(one[name] for one in sums) for name in sums[0]})
    assert found["exact"] > 0.9
    for one in outputs:
        row = rows[one.index]
        assert (one.given, one.expected) == (row["question"], row["end"])
    assert sum(one.got == one.expected for one in outputs) / len(outputs) == found["exact"]


def test_answers_beyond_the_positions_are_left_out(tmp_path) -> None:
    made = recipe(batches=AnsweringBatches(max_length=24)).prepare(tmp_path)
    assert "left out: their answer lies beyond 24 tokens" in made.notes[1]
    assert all(batch.inputs.size(1) <= 24 for batch in made.train)
    assert made.recipe.prepare(tmp_path).recipe == made.recipe
