"""A model that misleads on purpose: it says what an honest one says, and looks elsewhere.

loss = TVD(what it says, what the honest one says) - strength * KL(where it looks || where the honest one looks)

Wiegreffe & Pinter 2019, section 5. Whoever claims that attention explains should tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from regard.adapters.bert_inputs import Rows, rows_of
from regard.attention.capture import capture
from regard.attention.observe import Observe
from regard.errors import SettingError
from regard.inspection.statistics import jsd, tvd
from regard.models.pooling import PoolingClassifier
from regard.text.examples import Labelled
from regard.text.tokenizers.tokenizer import Tokenizer

ROWS = 64  # texts looked at together
LEAST = 1e-6  # smaller weights count as this much, so that no token pays without end


@dataclass(frozen=True)
class Misleading:
    """How the second model is trained: AdamW, `rows` texts a step. `strength`: how much looking elsewhere is worth."""

    strength: float = 0.1
    steps: int = 600
    rate: float = 3e-3
    rows: int = 32
    seed: int = 0

    def __call__(self, honest: PoolingClassifier, texts: Sequence[str], tokenizer: Tokenizer) -> PoolingClassifier:
        """A second model of the same make. It begins as a copy of the honest one that asks something else."""
        if not texts:
            raise SettingError("no texts", "those that the honest model was trained with", where="Misleading")
        honest.eval()
        second = self._begun(honest)
        optimiser = torch.optim.AdamW(second.parameters(), self.rate, weight_decay=0.0)
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        ids, order = tokenizer.ids_batch(list(texts)), Random(self.seed)
        for _ in range(self.steps):
            rows = _rows([ids[order.randrange(len(ids))] for _ in range(self.rows)], tokenizer, honest)
            with torch.no_grad():
                said, looked = heard(honest, rows)
            with torch.enable_grad():
                own, elsewhere = heard(second, rows)
                loss = (tvd(own, said) - self.strength * away(elsewhere, looked)).mean()
                optimiser.zero_grad()
                loss.backward()
            optimiser.step()
            slower.step()
        return second.eval()

    def _begun(self, honest: PoolingClassifier) -> PoolingClassifier:
        second = deepcopy(honest).train()
        chance = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            question = second.pooling.questions
            question.copy_(torch.randn(question.shape, generator=chance) * question.size(-1) ** -0.5)
        return second


@dataclass(frozen=True)
class Apart:
    """Means over texts: how far apart two models are in what they say (total variation), and in where they look
    (Jensen-Shannon divergence, at most ln 2)."""

    tvd: float
    jsd: float


@torch.no_grad()
def apart(one: PoolingClassifier, other: PoolingClassifier, texts: Sequence[str], tokenizer: Tokenizer) -> Apart:
    """Two models on the same texts."""
    ids = tokenizer.ids_batch(list(texts))
    said, looked = [], []
    for first in range(0, len(ids), ROWS):
        rows = _rows(ids[first : first + ROWS], tokenizer, one)
        (p, weights), (q, others) = heard(one.eval(), rows), heard(other.eval(), rows)
        said.append(tvd(p, q))
        looked.append(jsd(weights, others))
    return Apart(float(torch.cat(said).mean()), float(torch.cat(looked).mean()))


@torch.no_grad()
def share_on(model: PoolingClassifier, examples: Sequence[Labelled], tokenizer: Tokenizer) -> float:
    """How much of its attention a model pays to the words that decide, on average over examples that know them."""
    found = []
    for first in range(0, len(examples), ROWS):
        some = examples[first : first + ROWS]
        encoded = tokenizer.encode_batch([one.text for one in some])
        _, weights = heard(model.eval(), _rows([one.ids for one in encoded], tokenizer, model))
        for example, one, row in zip(some, encoded, weights, strict=True):
            if example.evidence is None:
                raise SettingError("an example without evidence", "words that are known to decide", where="share_on")
            pieces = [at for at, word in enumerate(one.words, 1) if word in example.evidence]  # [CLS] stands first
            found.append(float(row[pieces].sum()))
    return sum(found) / max(1, len(found))


def heard(model: PoolingClassifier, rows: Rows) -> tuple[Tensor, Tensor]:
    """What a classifier says, p (B, C), and where its question looks, weights (B, S)."""
    with capture(model, "pooling", Observe(weights=True)) as got:
        said = model(*rows).softmax(-1)
    weights = got["pooling"].weights
    assert weights is not None
    return said, weights.squeeze(-2)


def away(own: Tensor, honest: Tensor) -> Tensor:
    """KL(own || honest) of weights (B, S), by texts."""
    here = own > 0  # padding adds nothing
    safe = torch.where(here, own, 1.0)
    return torch.where(here, safe * (safe.log() - honest.clamp(min=LEAST).log()), 0.0).sum(-1)


def _rows(ids: Sequence[Sequence[int]], tokenizer: Tokenizer, model: PoolingClassifier) -> Rows:
    return rows_of(ids, [None] * len(ids), tokenizer.special, None, "Misleading").to(model.embedding.weight.device)
