"""Small language models of every kind, in float64 and with opinions, for tests of the laws they share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attention.scores import Additive, Bilinear, Cosine, Dot, ScaledDot
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.copy_gates import Average, Gate, Sentinel
from regard.models.cross_entropy import Logits, Mixture
from regard.models.embedding import WordEmbedding
from regard.models.neural_cache import NeuralCache
from regard.models.rnn import RecurrentLayers
from regard.models.rnn_lm import RecurrentLM
from regard.models.window_lm import WindowLM

VOCABULARY, WIDTH, HIDDEN, UNKNOWN, EXTRA = 11, 6, 8, 2, 3  # ids from VOCABULARY to VOCABULARY + EXTRA are no words


def words() -> WordEmbedding:
    return WordEmbedding(VOCABULARY, WIDTH, UNKNOWN)


def recurrent(cell: str = "lstm", layers: int = 1, **how) -> RecurrentLM:
    return lively(lambda: RecurrentLM(words(), RecurrentLayers(cell, WIDTH, HIDDEN, layers), **how))


def attentive(cell: str = "lstm", score=None, copy=None, memory: int = 20, layers: int = 1) -> AttentiveLM:
    look = PastAttention(score, memory, copy)
    return lively(lambda: AttentiveLM(words(), RecurrentLayers(cell, WIDTH, HIDDEN, layers), look))


def window(size: int = 3, **how) -> WindowLM:
    return lively(lambda: WindowLM(words(), size, HIDDEN, **how))


def lively(make: Callable[[], nn.Module]):
    """Fresh weights are too small to tell much."""
    torch.manual_seed(0)
    model = make().double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).double() * 0.6)
    return model


KINDS: dict[str, Callable[[], nn.Module]] = {
    "window": window,
    "rnn": lambda: recurrent("rnn"),
    "gru": lambda: recurrent("gru", layers=2),
    "lstm": lambda: recurrent("lstm", layers=2),
    "lstm, free": lambda: recurrent("lstm", tied=False),
    "attentive rnn": lambda: attentive("rnn", Dot()),
    "attentive gru": lambda: attentive("gru", Additive(HIDDEN, 5)),
    "attentive lstm": lambda: attentive("lstm", Bilinear(HIDDEN), layers=2),
    "attentive cosine": lambda: attentive("gru", Cosine()),
    "average": lambda: attentive("gru", ScaledDot(), Average()),
    "gate": lambda: attentive("lstm", Bilinear(HIDDEN), Gate(HIDDEN)),
    "sentinel": lambda: attentive("lstm", Dot(), Sentinel(HIDDEN)),
    "cache": lambda: NeuralCache(recurrent("lstm"), 20, flatness=0.5, share=0.3).double(),
    "cache of sentinel": lambda: NeuralCache(attentive("lstm", Dot(), Sentinel(HIDDEN)), 20, share=0.3).double(),
}


def tokens(*shape: int, seed: int = 1, extra: int = EXTRA) -> Tensor:
    return torch.randint(VOCABULARY + extra, shape, generator=torch.Generator().manual_seed(seed))


def shares(prediction) -> Tensor:
    """p of every token, (B, T, V + EXTRA), in float64."""
    if isinstance(prediction, Logits):
        return torch.nn.functional.pad(prediction.logits.double().softmax(-1), (0, EXTRA))
    assert isinstance(prediction, Mixture)
    generated = prediction.logits.softmax(-1).double() * prediction.p_gen.unsqueeze(-1)
    seen = prediction.copy_tokens.unsqueeze(1).expand_as(prediction.copy_weights)
    whole = torch.nn.functional.pad(generated, (0, EXTRA))
    return whole.scatter_add(-1, seen.clamp(min=0), prediction.copy_weights.double())


def written(model, inputs: Tensor, state=None) -> Tensor:
    """p of every next token, step by step, (B, T, V + EXTRA)."""
    if state is None:
        state = model.start(inputs[:, :0], torch.zeros(len(inputs), dtype=torch.long))
    said = []
    for place in range(inputs.size(1)):
        log_probs, _, state = model.step(state, inputs[:, place])
        said.append(torch.nn.functional.pad(log_probs.exp().double(), (0, VOCABULARY + EXTRA - log_probs.size(-1))))
    return torch.stack(said, 1)
