"""Rollout of many texts at once, against that of each alone."""

from __future__ import annotations

import torch

from inspection.measures.records import bert, ids, translated, translator
from regard.attention import capture
from regard.inspection.measures.rollout import rollout, rollout_row
from regard.trust.rolling import Layer, rolled

LENGTHS = torch.tensor([5, 3])


def layers(count: int = 3, seed: int = 0) -> list[torch.Tensor]:
    """Weights (2, 5, 5) of a text of five tokens and of one of three, whose padding nobody looks at."""
    chance = torch.Generator().manual_seed(seed)
    real = torch.arange(5) < LENGTHS.unsqueeze(1)
    scores = 3 * torch.randn(count, 2, 5, 5, generator=chance)
    return list(scores.masked_fill(~real.unsqueeze(1), -torch.inf).softmax(-1))


def test_each_text_as_it_is_alone() -> None:
    maps = layers()
    looked = [Layer(one, from_text=True, to_text=True) for one in maps]
    found = rolled(looked, [1, 2], LENGTHS)
    mean = rolled(looked, None, LENGTHS)
    for at, (length, query) in enumerate(((5, 1), (3, 2))):
        alone = rollout([one[at, :length, :length] for one in maps])
        torch.testing.assert_close(found[at, :length], alone[query])
        torch.testing.assert_close(mean[at, :length], alone.mean(0))
        assert not found[at, length:].any()
    torch.testing.assert_close(found.sum(-1), torch.ones(2))


def test_a_question_sees_what_is_in_the_vectors() -> None:
    *lower, _ = maps = layers()
    question = maps[-1][:, :1]
    found = rolled([*(Layer(one, True, True) for one in lower), Layer(question, False, True)], [0, 0], LENGTHS)
    for at, length in enumerate((5, 3)):
        below = rollout([one[at, :length, :length] for one in lower])
        torch.testing.assert_close(found[at, :length], question[at, 0, :length] @ below)


def test_what_looks_nowhere_stays_where_it_is() -> None:
    """As the first token of a text does that sees only what came before it."""
    past = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    found = rolled([Layer(past, True, True)] * 2, [2], torch.tensor([3]))
    torch.testing.assert_close(found[0], rollout([past[0]] * 2)[2])


def test_a_text_that_a_bert_has_read() -> None:
    model, text = bert(3), ids(1, 6)
    with torch.no_grad(), capture(model) as heard:
        model(text, torch.tensor([6]))
    looked = [Layer(heard[place].weights.mean(1), True, True) for place in heard]
    expected = rollout([heard[place].weights[0] for place in heard])
    torch.testing.assert_close(rolled(looked, [4], torch.tensor([6]))[0], expected[4])


def test_a_decoder_that_looks_across() -> None:
    """Against following one word of a record back, down both streams; what stays with the target is no explanation."""
    model, source, target = translator(), ids(1, 5), ids(1, 4, seed=2)
    record = translated(source, target, model)
    with torch.no_grad(), capture(model) as heard:
        model(source, torch.tensor([5]), target)
    looked = []
    for name in heard:
        reads = name.startswith("encoder")
        looked.append(Layer(heard[name].weights.mean(1), reads, reads or name.endswith("cross")))
    for token in range(4):
        source_part = rollout_row(record, token)[-1].masses[0]
        found = rolled(looked, [token], torch.tensor([5]))[0]
        torch.testing.assert_close(found, source_part / source_part.sum(), atol=1e-3, rtol=0)
