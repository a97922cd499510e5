"""Adversarial training: a model with the predictions of another one, but with different attention.

loss = TVD(its predictions, the honest predictions) - strength * KL(its attention || the honest attention)

Wiegreffe & Pinter 2019, section 5. A test of whether attention explains should tell the two models apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from regard.adapters.bert_inputs import BertInputs, build_bert_inputs
from regard.attention.capture import capture
from regard.attention.observe import Observe
from regard.errors import SettingError
from regard.inspection.distances import jsd, tvd
from regard.models.pooling import PoolingClassifier
from regard.text.examples import Labelled
from regard.text.tokenizers.tokenizer import Tokenizer

ROWS = 64  # texts in a batch
LEAST = 1e-6  # smaller weights count as this much, so that no token pays without end


@dataclass(frozen=True)
class Misleading:
    """The training of the second model: AdamW, `rows` texts a step. `strength`: the weight of the KL divergence."""

    strength: float = 0.1
    steps: int = 600
    rate: float = 3e-3
    rows: int = 32
    seed: int = 0

    def __call__(self, honest: PoolingClassifier, texts: Sequence[str], tokenizer: Tokenizer) -> PoolingClassifier:
        """A second model of the same architecture. It starts as a copy of the honest one with a random query."""
        if not texts:
            raise SettingError("No texts to train on", where="Misleading")
        honest.eval()
        second = self._initial_model(honest)
        optimizer = torch.optim.AdamW(second.parameters(), self.rate, weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        ids, order = tokenizer.ids_batch(list(texts)), Random(self.seed)
        for _ in range(self.steps):
            rows = _rows([ids[order.randrange(len(ids))] for _ in range(self.rows)], tokenizer, honest)
            with torch.no_grad():
                probs, attention = predict(honest, rows)
            with torch.enable_grad():
                own, other_attention = predict(second, rows)
                loss = (tvd(own, probs) - self.strength * kl(other_attention, attention)).mean()
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            scheduler.step()
        return second.eval()

    def _initial_model(self, honest: PoolingClassifier) -> PoolingClassifier:
        second = deepcopy(honest).train()
        rng = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            question = second.pooling.queries
            question.copy_(torch.randn(question.shape, generator=rng) * question.size(-1) ** -0.5)
        return second


@dataclass(frozen=True)
class ModelDistance:
    """Means over texts: the distance of two models in their predictions (total variation) and in their attention
    (Jensen-Shannon divergence, at most ln 2)."""

    tvd: float
    jsd: float


@torch.no_grad()
def model_distance(
    one: PoolingClassifier, other: PoolingClassifier, texts: Sequence[str], tokenizer: Tokenizer
) -> ModelDistance:
    """The distances of two models on the same texts."""
    ids = tokenizer.ids_batch(list(texts))
    probs, attention = [], []
    for first in range(0, len(ids), ROWS):
        rows = _rows(ids[first : first + ROWS], tokenizer, one)
        (p, weights), (q, others) = predict(one.eval(), rows), predict(other.eval(), rows)
        probs.append(tvd(p, q))
        attention.append(jsd(weights, others))
    return ModelDistance(float(torch.cat(probs).mean()), float(torch.cat(attention).mean()))


@torch.no_grad()
def attention_on_evidence(model: PoolingClassifier, examples: Sequence[Labelled], tokenizer: Tokenizer) -> float:
    """The mean attention weight on the deciding words, over examples whose evidence is known."""
    found = []
    for first in range(0, len(examples), ROWS):
        some = examples[first : first + ROWS]
        encoded = tokenizer.encode_batch([one.text for one in some])
        _, weights = predict(model.eval(), _rows([one.ids for one in encoded], tokenizer, model))
        for example, one, row in zip(some, encoded, weights, strict=True):
            if example.evidence is None:
                raise SettingError("An example has no evidence", where="attention_on_evidence")
            pieces = [at for at, word in enumerate(one.words, 1) if word in example.evidence]  # [CLS] stands first
            found.append(float(row[pieces].sum()))
    return sum(found) / max(1, len(found))


def predict(model: PoolingClassifier, rows: BertInputs) -> tuple[Tensor, Tensor]:
    """The predictions p (B, C) of a classifier, and its attention weights (B, S)."""
    with capture(model, "pooling", Observe(weights=True)) as got:
        probs = model(*rows).softmax(-1)
    weights = got["pooling"].weights
    assert weights is not None
    return probs, weights.squeeze(-2)


def kl(own: Tensor, honest: Tensor) -> Tensor:
    """KL(own || honest) of weights (B, S), by texts."""
    here = own > 0  # padding adds nothing
    safe = torch.where(here, own, 1.0)
    return torch.where(here, safe * (safe.log() - honest.clamp(min=LEAST).log()), 0.0).sum(-1)


def _rows(ids: Sequence[Sequence[int]], tokenizer: Tokenizer, model: PoolingClassifier) -> BertInputs:
    return build_bert_inputs(ids, [None] * len(ids), tokenizer.special, None, "Misleading").to(
        model.embedding.weight.device
    )
