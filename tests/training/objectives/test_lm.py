"""Laws of the objectives: losses by hand, ranks that add up, no rows, smoothing not measured, steady samples."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch
from torch import nn

from regard.models.gpt import GPT
from regard.models.pooling import PoolingClassifier
from regard.text.batches.batch import BlockBatch, LabelledBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.collate import LabelCollator
from regard.text.batches.lm_batches import BlockCollator, TokenBlocks, TokenStream
from regard.text.batches.plan import Batches
from regard.text.corpora.labels import Labels
from regard.text.examples import IGNORED, Document, Labelled
from regard.text.store.fields import DocumentFields, LabelledFields, encode_columns
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import CharacterLevel, WordLevel
from regard.training.objectives.classification import ClassificationObjective
from regard.training.objectives.lm import CausalLMObjective

LABELS = Labels(("bad", "fair", "good"))
EXAMPLES = [
    Labelled("what a fine film", "good"),
    Labelled("the worst of all", "bad"),
    Labelled("well", "fair"),
    Labelled("fine fine fine fine fine", "good"),
    Labelled("the film of the film", "bad"),
]
STORIES = [Document(("to be\n", "or not\n")), Document(("that is the question\n",)), Document(("whether\n",))]
SIZE = 8


def classifying(ranks: int = 1, rank: int = 0) -> tuple[nn.Module, LabelledBatch, ClassificationObjective]:
    tokenizer = Tokenizer.train(WordLevel(40), [example.text for example in EXAMPLES])
    collate = LabelCollator(encode_columns(EXAMPLES, LabelledFields(tokenizer, LABELS)), tokenizer.special)
    batches = Batches(Buckets(collate.lengths, 100), collate, seed=3, rank=rank, ranks=ranks)
    torch.manual_seed(0)
    model = PoolingClassifier(len(tokenizer), 3, 8).eval()
    return model, max(batches, key=lambda batch: batch.all_tokens), ClassificationObjective(LABELS, tokenizer)


def reading(ranks: int = 1, rank: int = 0) -> tuple[nn.Module, BlockBatch, CausalLMObjective]:
    tokenizer = Tokenizer.train(CharacterLevel(), [line for story in STORIES for line in story.sentences])
    columns = encode_columns(STORIES, DocumentFields(tokenizer))
    stream = TokenStream.documents(columns, tokenizer.special.need("end"))
    batches = Batches(TokenBlocks(stream, SIZE, rows=5), BlockCollator(stream), seed=3, rank=rank, ranks=ranks)
    torch.manual_seed(0)
    model = GPT(len(tokenizer), 16, 1, 2, SIZE).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(20)  # so that it has an opinion
    return model, next(iter(batches)), CausalLMObjective(tokenizer, 0.9, SIZE)


TASKS = [classifying, reading]
by_task = pytest.mark.parametrize("task", TASKS, ids=["classify", "predict"])


def logits_and_targets(model, batch) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(batch, LabelledBatch):
        return model(batch.inputs, batch.lengths), batch.labels
    return model(batch.inputs, batch.documents).flatten(0, 1), batch.targets.flatten()


def no_rows(batch):
    empty = {name: getattr(batch, name)[:0] for name in vars(batch) if torch.is_tensor(getattr(batch, name))}
    return replace(batch, **empty, tokens=0)


@by_task
def test_the_loss_is_the_sum_of_surprises(task) -> None:
    model, batch, objective = task()
    logits, targets = logits_and_targets(model, batch)
    expected = sum(
        -logits.detach()[at].double().log_softmax(0)[target]
        for at, target in enumerate(targets.tolist())
        if target != IGNORED
    )
    total = objective.loss(model, batch, None).total
    assert total.shape == () and total.dtype == torch.float32
    torch.testing.assert_close(total.detach().double(), expected)
    with torch.no_grad():
        sums = objective.measure(model, batch, None).sums
    torch.testing.assert_close(sums["nll"], expected)
    assert objective.summary(sums)["loss"] == pytest.approx(float(expected) / batch.tokens)
    assert set(objective.summary(sums)) == set(objective.metrics) and "loss" in objective.metrics


@by_task
def test_smoothing_is_trained_and_not_measured(task) -> None:
    model, batch, objective = task()
    smooth = replace(objective, label_smoothing=0.1)
    logits, targets = logits_and_targets(model, batch)
    shares = logits.double().log_softmax(-1)[targets != IGNORED]
    plain, spread = objective.loss(model, batch, None).total.double(), -shares.mean(-1).sum()
    torch.testing.assert_close(smooth.loss(model, batch, None).total.double(), 0.9 * plain + 0.1 * spread)
    with torch.no_grad():
        ours, theirs = (one.measure(model, batch, None).sums["nll"] for one in (smooth, objective))
    assert torch.equal(ours, theirs)


@by_task
@pytest.mark.parametrize("ranks", [2, 7])
def test_ranks_add_up_to_one(task, ranks) -> None:
    model, batch, objective = task()
    objective = replace(objective, label_smoothing=0.1)
    whole, sums = objective.loss(model, batch, None).total, objective.measure(model, batch, None).sums
    parts = [task(ranks, rank)[1] for rank in range(ranks)]
    assert sum(map(len, parts)) == len(batch) and {part.all_tokens for part in parts} == {batch.tokens}
    torch.testing.assert_close(sum(objective.loss(model, part, None).total for part in parts), whole)
    measured = [objective.measure(model, part, None).sums for part in parts]
    for name, total in sums.items():
        torch.testing.assert_close(sum(one[name] for one in measured), total)


@by_task
def test_no_rows_give_zero_everywhere(task) -> None:
    model, batch, objective = task()
    empty = no_rows(batch)
    total = replace(objective, label_smoothing=0.1).loss(model, empty, None).total
    total.backward()
    assert float(total.detach()) == 0
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.parameters())
    with torch.no_grad():
        full, none = (objective.measure(model, one, None).sums for one in (batch, empty))
    assert {name: value.shape for name, value in none.items()} == {name: value.shape for name, value in full.items()}
    assert not any(value.any() for value in none.values())
    assert list(objective.outputs(model, empty)) == []
    assert np.isnan(objective.summary(none)["loss"])


@by_task
def test_sums_are_float64_and_half_precision_is_widened(task) -> None:
    model, batch, objective = task()
    with torch.autocast("cpu", torch.bfloat16):
        assert objective.loss(model, batch, None).total.dtype == torch.float32
    assert {value.dtype for value in objective.measure(model, batch, None).sums.values()} == {torch.float64}


@by_task
def test_nothing_is_graded(task) -> None:
    model, batch, objective = task()
    assert objective.text_metrics(objective.outputs(model, batch)) == {}


def test_classification_counts() -> None:
    objective = classifying()[2]
    table = torch.tensor([[2.0, 0, 1], [0, 0, 0], [1, 0, 4]]).double()
    got = objective.summary({"nll": torch.tensor(4.0).double(), "confusion": table})
    macro = (2 * 2 / (2 * 2 + 1 + 1) + 0 + 2 * 4 / (2 * 4 + 1 + 1)) / 3
    assert got == pytest.approx({"loss": 0.5, "accuracy": 6 / 8, "f1": macro})


def test_what_a_classifier_says() -> None:
    model, batch, objective = classifying()
    said = model(batch.inputs, batch.lengths).argmax(-1)
    outputs = objective.outputs(model, batch)
    assert [one.index for one in outputs] == batch.indices.tolist()
    for one, number in zip(outputs, said.tolist(), strict=True):
        assert (one.given, one.expected) == (EXAMPLES[one.index].text, EXAMPLES[one.index].label)
        assert one.got == LABELS.names[number]
    assert objective.measure(model, batch, None).sums["confusion"].trace() == sum(
        one.got == one.expected for one in outputs
    )


def test_perplexity_and_bits_belong_to_the_loss() -> None:
    objective = reading()[2]
    got = objective.summary({"nll": torch.tensor(20.0).double(), "tokens": torch.tensor(10.0).double()})
    assert got == pytest.approx({"loss": 2.0, "perplexity": exp(2), "bits_per_character": 20 / (9 * log(2))})


def test_samples_begin_with_the_text_and_are_always_the_same() -> None:
    model, batch, objective = reading()
    before = torch.get_rng_state()
    with torch.no_grad():
        outputs = objective.outputs(model, batch)
        again = objective.outputs(model, batch)
        alone = objective.outputs(model, replace(batch, **{k: v[1:2] for k, v in rows_of(batch).items()}))
    assert torch.equal(torch.get_rng_state(), before)
    assert outputs == again and alone == [outputs[1]]
    assert [one.index for one in outputs] == batch.indices.tolist()
    for one, row in zip(outputs, batch.inputs.tolist(), strict=True):
        assert one.given == objective.tokenizer.decode(row[: SIZE // 4])
    assert len({one.got for one in outputs}) > 1  # each row has chance of its own


def rows_of(batch) -> dict[str, torch.Tensor]:
    return {name: value for name, value in vars(batch).items() if torch.is_tensor(value)}


def test_a_cold_sample_is_the_likeliest_continuation() -> None:
    """Checked against plain recomputation, with the documents written out."""
    model, batch, objective = reading()
    cold = replace(objective, temperature=1e-6)
    with torch.no_grad():
        for row, one in enumerate(cold.outputs(model, batch)):
            length = min(SIZE // 4, int((batch.targets[row] != IGNORED).sum()))
            ids = batch.inputs[row : row + 1, :length]
            documents = batch.documents[row : row + 1, :length]
            while ids.size(1) < SIZE:
                new = model(ids, documents)[:, -1:].argmax(-1)
                ids = torch.cat((ids, new), 1)
                ends = (new == objective.tokenizer.special.end).long()
                documents = torch.cat((documents, documents[:, -1:] + ends), 1)
            assert one.got == objective.tokenizer.decode(ids[0, length:].tolist())


def test_samples_follow_the_model_s_shares() -> None:
    """Over many rows, the first token comes as often as the model says."""
    model, batch, objective = reading()
    hot = replace(objective, temperature=1.0, continuation=1)
    rows = 4000
    one = {name: value[:1].expand(rows, *value.shape[1:]) for name, value in rows_of(batch).items()}
    many = replace(batch, **{**one, "indices": torch.arange(rows)})
    with torch.no_grad():
        shares = model(batch.inputs[:1, : SIZE // 4], batch.documents[:1, : SIZE // 4])[0, -1].softmax(-1)
        said = [output.got for output in hot.outputs(model, many)]
    for number, share in enumerate(shares.tolist()):
        if number not in objective.tokenizer.special.all:
            assert said.count(objective.tokenizer.decode([number])) / rows == pytest.approx(share, abs=0.04)
