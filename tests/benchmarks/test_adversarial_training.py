"""Adversarial training: a misleading model predicts what the honest one predicts, with other attention."""

from __future__ import annotations

from math import log
from random import Random

import pytest
import torch
from torch import nn

from benchmark import benchmark
from regard.adapters.bert_inputs import build_bert_inputs
from regard.attention import scores
from regard.errors import SettingError
from regard.models.pooling import BiRNN, PoolingClassifier
from regard.text import Tokenizer
from regard.text.examples import Labelled
from regard.text.tokenizers.trainers import WordLevel

training = benchmark("adversarial_training")
Misleading, predict, kl = training.Misleading, training.predict, training.kl
model_distance, attention_on_evidence = training.model_distance, training.attention_on_evidence

FILL = "the a of it so and one two".split()
GOOD, BAD = "great fine".split(), "poor weak".split()


def drawn(chance: Random) -> Labelled:
    """Seven words that say nothing, and one that decides."""
    words = [chance.choice(FILL) for _ in range(7)]
    at, good = chance.randrange(7), chance.random() < 0.5
    words[at] = chance.choice(GOOD if good else BAD)
    return Labelled(" ".join(words), "positive" if good else "negative", evidence=(at,))


EXAMPLES = [drawn(Random(number)) for number in range(200)]
TEXTS = [one.text for one in EXAMPLES]
TOKENIZER = Tokenizer.train(WordLevel(30), TEXTS)


def rows(some: list[str]):
    return build_bert_inputs(TOKENIZER.ids_batch(some), [None] * len(some), TOKENIZER.special, None, "test")


@pytest.fixture(scope="module")
def honest() -> PoolingClassifier:
    torch.manual_seed(0)
    model = PoolingClassifier(len(TOKENIZER), 2, 16, scores.Additive(16, 16), encoder=BiRNN(16))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    labels = torch.tensor([one.label == "positive" for one in EXAMPLES]).long()
    for step in range(60):
        some = slice(step * 40 % 200, step * 40 % 200 + 40)
        loss = nn.functional.cross_entropy(model(*rows(TEXTS[some])), labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (model.eval()(*rows(TEXTS)).argmax(-1) == labels).float().mean() > 0.98
    return model


def test_same_predictions_with_different_attention(honest: PoolingClassifier) -> None:
    before = {name: value.clone() for name, value in honest.state_dict().items()}
    second = Misleading(strength=0.03, steps=150, rate=1e-2)(honest, TEXTS, TOKENIZER)
    found = model_distance(honest, second, TEXTS, TOKENIZER)
    assert found.tvd < 0.05
    assert found.jsd > 0.6 * log(2)
    assert attention_on_evidence(second, EXAMPLES, TOKENIZER) < 0.5 * attention_on_evidence(honest, EXAMPLES, TOKENIZER)
    assert all(torch.equal(value, before[name]) for name, value in honest.state_dict().items())


def test_the_strength_of_the_divergence_matters(honest: PoolingClassifier) -> None:
    """Without a reward for the divergence, attention stays closer."""
    far = [
        model_distance(
            honest, Misleading(strength, steps=60, rate=1e-2)(honest, TEXTS, TOKENIZER), TEXTS, TOKENIZER
        ).jsd
        for strength in (0.0, 0.03)
    ]
    assert far[0] < far[1]


def test_the_same_seed_gives_the_same_model(honest: PoolingClassifier) -> None:
    one, same, other = (Misleading(steps=5, seed=seed)(honest, TEXTS, TOKENIZER) for seed in (1, 1, 2))
    assert torch.equal(one.pooling.queries, same.pooling.queries)
    assert not torch.equal(one.pooling.queries, other.pooling.queries)


def test_a_model_has_no_distance_from_itself(honest: PoolingClassifier) -> None:
    found = model_distance(honest, honest, TEXTS, TOKENIZER)
    assert found.tvd == 0 and found.jsd == pytest.approx(0, abs=1e-6)


def test_kl_ignores_padding() -> None:
    p, q = torch.tensor([[0.5, 0.3, 0.2]]).double(), torch.tensor([[0.1, 0.6, 0.3]]).double()
    expected = (p * (p / q).log()).sum()
    torch.testing.assert_close(kl(p, q)[0], expected)
    padded = [torch.cat((one, torch.zeros(1, 2).double()), 1).requires_grad_() for one in (p, q)]
    torch.testing.assert_close(kl(*padded)[0], expected)
    kl(*padded).sum().backward()
    assert padded[0].grad is not None and padded[0].grad.isfinite().all()


@torch.no_grad()
def test_attention_on_evidence_is_the_weight_of_those_words(honest: PoolingClassifier) -> None:
    _, weights = predict(honest, rows(TEXTS[:50]))
    expected = [row[1 + one.evidence[0]] for row, one in zip(weights, EXAMPLES, strict=False)]
    assert attention_on_evidence(honest, EXAMPLES[:50], TOKENIZER) == pytest.approx(
        float(torch.stack(expected).mean()), abs=1e-6
    )
    with pytest.raises(SettingError, match="has no evidence"):
        attention_on_evidence(honest, [Labelled("a b", "positive")], TOKENIZER)
    with pytest.raises(SettingError, match="No texts to train on"):
        Misleading()(honest, [], TOKENIZER)
