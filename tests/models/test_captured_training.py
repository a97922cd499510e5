"""Capturing a model while it trains changes no bit of its loss or of any gradient, whatever is observed."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from attention.cases import ALL
from models import rnn_language_models, translators
from models.rnn_language_models import HIDDEN, VOCABULARY, attentive
from regard.attention import Observe, capture
from regard.attention.scores import Additive, Bilinear, Dot
from regard.models.copy_gates import Average, Gate, Sentinel
from regard.models.cross_entropy import Mixture
from regard.models.lazy_copy_weights import LazyCopyWeights
from regard.models.neural_cache import NeuralCache

OBSERVES = pytest.mark.parametrize(
    "observe", [Observe(weights=True), ALL, Observe(values=True, entropy=True)], ids=["weights", "all", "values"]
)


def assert_captures_change_no_bit(model: nn.Module, loss: Callable[[], Tensor], observe: Observe) -> None:
    def trained() -> list[Tensor | None]:
        torch.manual_seed(7)  # of dropout
        total = loss()
        return [total, *torch.autograd.grad(total, list(model.parameters()), allow_unused=True)]

    alone = trained()
    with capture(model, observe=observe) as heard:
        listened = trained()
    assert all(heard.calls(place) for place in heard.places) and heard.places
    for one, other in zip(alone, listened, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


@OBSERVES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@translators.by_attending
def test_translators(name: str, dtype: torch.dtype, observe: Observe) -> None:
    model = translators.translator(name).to(dtype).train()
    model.dropout.p = 0.2
    source, lengths, target = translators.batch()

    def loss() -> Tensor:
        prediction, _ = model(source, lengths, target)
        return prediction.nll(target.roll(-1, 1)).sum()

    assert_captures_change_no_bit(model, loss, observe)


@OBSERVES
@pytest.mark.parametrize("coverage", [True, False])
def test_a_pointer_generator(coverage: bool, observe: Observe) -> None:
    model = translators.pointer(coverage).float().train()
    source, lengths, target = translators.batch()

    def loss() -> Tensor:
        prediction, again = model(source, lengths, target)
        total = prediction.nll(target.roll(-1, 1)).sum()
        return total if again is None else total + again.sum()

    assert_captures_change_no_bit(model, loss, observe)


LOOKING: dict[str, Callable[[], nn.Module]] = {
    "dot": lambda: attentive("rnn", Dot()),
    "additive": lambda: attentive("gru", Additive(HIDDEN, 5)),
    "bilinear": lambda: attentive("lstm", Bilinear(HIDDEN), layers=2),
    "average": lambda: attentive("gru", Dot(), Average()),
    "gate": lambda: attentive("lstm", Dot(), Gate(HIDDEN)),
    "sentinel": lambda: attentive("lstm", Bilinear(HIDDEN), Sentinel(HIDDEN)),
    "cached": lambda: NeuralCache(rnn_language_models.recurrent("lstm"), 4),
}


@OBSERVES
@pytest.mark.parametrize("held", [True, False], ids=["held", "lazy"])
@pytest.mark.parametrize("name", LOOKING)
def test_language_models_that_look_back(name: str, held: bool, observe: Observe) -> None:
    model = LOOKING[name]().float().train()
    text = rnn_language_models.tokens(2, 9) % VOCABULARY
    lazy = []

    def loss() -> Tensor:
        prediction, _ = model(text)
        lazy.append(isinstance(prediction, Mixture) and isinstance(prediction.copy_weights, LazyCopyWeights))
        return prediction.nll(text.roll(-1, 1)).sum()

    with patch("regard.models.attentive_rnn_lm.max_materialized", lambda device: 10**9 if held else 0):
        assert_captures_change_no_bit(model, loss, observe)
    assert lazy[0] == lazy[1] == (not held and name in ("average", "gate", "sentinel"))
