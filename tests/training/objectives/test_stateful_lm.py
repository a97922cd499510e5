"""Laws of ReadOn: losses by hand, lanes that go on, ranks that add up, words outside the vocabulary, steady samples."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pytest
import torch

from regard.attention.scores import Bilinear
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.copy_gates import Sentinel
from regard.models.cross_entropy import Logits, Mixture, map_unreachable_to_unk
from regard.models.embedding import WordEmbedding
from regard.models.neural_cache import NeuralCache
from regard.models.rnn import RecurrentLayers
from regard.models.rnn_lm import RecurrentLM
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenStream
from regard.text.batches.plan import Batches
from regard.text.examples import IGNORED, Document
from regard.text.store.fields import DocumentFields, encode_columns
from regard.text.tokenizers import trainers
from regard.text.tokenizers.oov import oov_id
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training import metrics
from regard.training.objectives.stateful_lm import StatefulLMObjective, closed_vocabulary_nll, token_nlls

STORIES = [
    Document(("the cat met Valdon .", "Valdon ran .", "the cat ran .", "Valdon met the cat .")),
    Document(("the dog met Torvik .", "the dog ran .", "Torvik met the dog .", "Torvik ran .")),
]
KNOWN = ["the cat met the dog .", "the dog ran .", "the cat ran ."]
SIZE, LANES = 6, 3


def reading(copying: bool = False, ranks: int = 1, rank: int = 0):
    tokenizer = Tokenizer.train(trainers.WordLevel(20), KNOWN)
    columns = encode_columns(STORIES, DocumentFields(tokenizer, open_vocabulary=copying))
    stream = TokenStream.documents(columns, tokenizer.special.need("end"))
    batches = Batches(Lanes(stream, SIZE, LANES), BlockCollator(stream), seed=3, rank=rank, ranks=ranks)
    torch.manual_seed(0)
    words, recurrence = WordEmbedding(len(tokenizer), 8, tokenizer.special.unknown), RecurrentLayers("lstm", 8, 8)
    look = PastAttention(Bilinear(8), memory=9, copy=Sentinel(8))
    model = AttentiveLM(words, recurrence, look) if copying else RecurrentLM(words, recurrence)
    return model.eval(), list(batches), StatefulLMObjective(tokenizer, 0.9, SIZE, open_vocabulary=copying)


by_copying = pytest.mark.parametrize("copying", [False, True], ids=["softmax", "copying"])


def whole(model, batches, objective) -> dict[str, float]:
    """The sums over all batches, each read on from the last."""
    sums, carry = {}, None
    with torch.no_grad():
        for batch in batches:
            got = objective.measure(model, batch, carry)
            carry = got.carry
            sums = {name: sums.get(name, 0) + value for name, value in got.sums.items()}
    return sums


def test_a_lane_goes_on_where_it_ended() -> None:
    model, batches, objective = reading()
    sums = whole(model, batches, objective)
    expected, tokens = 0.0, 0
    for lane in range(LANES):
        ids = torch.cat([batch.inputs[lane] for batch in batches])[None]
        targets = torch.cat([batch.targets[lane] for batch in batches])[None]
        expected += float(model(ids)[0].nll(targets).sum().detach())  # the whole lane at once
        tokens += int((targets != IGNORED).sum())
    assert float(sums["nll"]) == pytest.approx(expected, rel=1e-6) and float(sums["tokens"]) == tokens
    assert objective.summary(sums)["perplexity"] == pytest.approx(exp(expected / tokens), rel=1e-6)


@by_copying
def test_an_epoch_begins_anew(copying) -> None:
    model, batches, objective = reading(copying)
    assert not batches[0].carried and batches[1].carried
    fresh = objective.loss(model, batches[0], None)
    stale = objective.loss(model, batches[0], objective.loss(model, batches[1], None).carry)
    assert torch.equal(fresh.total, stale.total)
    again = objective.loss(model, batches[1], None).total
    assert not torch.equal(objective.loss(model, batches[1], fresh.carry).total, again)


@by_copying
def test_blocks_carry_nothing(copying) -> None:
    model, batches, objective = reading(copying)
    alone = replace(objective, carries_state=False)
    assert alone.loss(model, batches[0], None).carry is None and alone.measure(model, batches[0], None).carry is None
    assert objective.loss(model, batches[0], None).carry


@by_copying
def test_ranks_add_up_to_one(copying) -> None:
    model, batches, objective = reading(copying)
    sums = whole(model, batches, objective)
    parts = [whole(*reading(copying, 4, rank)[:2], objective) for rank in range(4)]  # one rank has no lane
    for name, total in sums.items():
        torch.testing.assert_close(sum(part[name] for part in parts), total)


@by_copying
def test_no_rows_give_zero_everywhere(copying) -> None:
    model, batches, objective = reading(copying, ranks=4, rank=3)
    assert len(batches[0]) == 0
    first = replace(objective, label_smoothing=0.1).loss(model, batches[0], None)
    second = objective.loss(model, batches[1], first.carry)
    (first.total + second.total).backward()
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())
    assert not any(value.any() for value in objective.measure(model, batches[0], None).sums.values())
    assert list(objective.outputs(model, batches[0])) == []


@by_copying
def test_smoothing_is_trained_and_not_measured(copying) -> None:
    model, batches, objective = reading(copying)
    smooth = replace(objective, label_smoothing=0.1)
    assert smooth.loss(model, batches[0], None).total > objective.loss(model, batches[0], None).total * 0.9
    assert not torch.equal(smooth.loss(model, batches[0], None).total, objective.loss(model, batches[0], None).total)
    sums = [one.measure(model, batches[0], None).sums["nll"] for one in (smooth, objective)]
    assert torch.equal(*sums) and sums[0].dtype == torch.float64


def test_the_metrics_are_those_that_are_named() -> None:
    for copying in (False, True):
        model, batches, objective = reading(copying)
        assert set(objective.summary(whole(model, batches, objective))) == set(objective.metrics)
        assert ("closed_perplexity" in objective.metrics) == copying


def test_a_name_is_unknown_until_it_was_seen_in_its_story() -> None:
    model, batches, objective = reading(copying=True)
    size, unknown = len(objective.tokenizer), objective.tokenizer.special.unknown
    valdon, torvik = oov_id("Valdon", size), oov_id("Torvik", size)
    carry, seen, expected = None, {}, 0
    for batch in batches:
        prediction, carry = model(batch.inputs, batch.documents, carry)
        targets = map_unreachable_to_unk(prediction, batch.targets, unknown)
        for lane, place in np.ndindex(*batch.targets.shape):
            key = (lane, int(batch.documents[lane, place]))
            target, read = int(batch.targets[lane, place]), int(batch.inputs[lane, place])
            known = target < size or target in seen.get(key, set())
            assert int(targets[lane, place]) == (target if known else unknown)
            seen.setdefault(key, set()).add(read)  # itself it does not see: strictly the past
            expected += target in (valdon, torvik) and known
    assert expected >= 2


def test_a_softmax_alone_knows_the_unknown_word_only() -> None:
    prediction = Logits(torch.zeros(1, 3, 5))
    assert map_unreachable_to_unk(prediction, torch.tensor([[4, 7, IGNORED]]), 1).tolist() == [[4, 1, IGNORED]]
    assert map_unreachable_to_unk(prediction, torch.tensor([[4, 3, IGNORED]]), None).tolist() == [[4, 3, IGNORED]]


def test_closed_perplexity_takes_all_unknown_words_as_one() -> None:
    logits, seen = torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[5, 2, 9, 5]])
    prediction = Mixture(logits, torch.tensor([[0.6]]), torch.tensor([[[0.1, 0.1, 0.15, 0.05]]]), seen)
    unknown = 0.6 * logits.softmax(-1)[0, 0, 1] + 0.1 + 0.15 + 0.05
    for target in (1, 5, 9, 77):  # whichever it is
        got = closed_vocabulary_nll(prediction, torch.tensor([[target]]), 1)
        torch.testing.assert_close(got, -unknown.log()[None, None])
    word = closed_vocabulary_nll(prediction, torch.tensor([[2]]), 1)
    torch.testing.assert_close(word, -(0.6 * logits.softmax(-1)[0, 0, 2] + 0.1).log()[None, None])


@by_copying
@pytest.mark.parametrize("segment", [1, 4, 100])
def test_surprises_of_a_text_do_not_depend_on_the_segments(copying, segment) -> None:
    model, batches, objective = reading(copying)
    ids, unknown = torch.cat([batch.inputs[:2] for batch in batches], 1)[:, :9], objective.tokenizer.special.unknown
    with torch.no_grad():
        prediction, _ = model(ids[:, :-1])
        expected = prediction.nll(map_unreachable_to_unk(prediction, ids[:, 1:], unknown))
    torch.testing.assert_close(token_nlls(model, ids, unknown, segment), expected)
    cached = token_nlls(NeuralCache(model, 20, share=0.5), ids, unknown, segment)
    assert cached.shape == (2, 8) and metrics.perplexity(float(cached.sum()), cached.numel()) > 1
    assert token_nlls(model, ids[:, :1], unknown).shape == (2, 0)


@by_copying
def test_samples_begin_with_the_text_and_are_always_the_same(copying) -> None:
    model, batches, objective = reading(copying)
    batch, objective = batches[0], replace(objective, max_length=16, continuation=12)
    before = torch.get_rng_state()
    outputs, again = objective.outputs(model, batch), objective.outputs(model, batch)
    rows = {name: value[1:2] for name, value in vars(batch).items() if torch.is_tensor(value)}
    assert objective.outputs(model, replace(batch, **rows)) == [outputs[1]]
    assert outputs == again and torch.equal(torch.get_rng_state(), before)
    assert [one.index for one in outputs] == batch.indices.tolist() and len({one.got for one in outputs}) > 1


def test_samples_may_say_a_name_that_they_read() -> None:
    model, batches, objective = reading(copying=True)
    with torch.no_grad():
        model.score.weight.zero_()  # it looks everywhere alike
        model.copy.vector.zero_()  # and copies more, the more there is
    row = next(at for at, ids in enumerate(batches[0].inputs) if (ids[:5] >= len(objective.tokenizer)).any())
    texts = replace(objective, max_length=20, continuation=60, temperature=3.0).outputs(model, batches[0])
    assert "⟨0⟩" in texts[row].given and "⟨0⟩" in texts[row].got


def test_the_unknown_token_is_never_drawn() -> None:
    model, batches, objective = reading()
    with torch.no_grad():
        model.softmax.bias[objective.tokenizer.special.unknown] = 50.0
    texts = replace(objective, continuation=30).outputs(model, batches[0])
    assert all(text.got for text in texts)  # a special token would not be shown
