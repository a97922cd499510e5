"""Bahdanau's loop with its derivative written out: equal to the loop that autograd walks, and heard like it."""

import pytest
import torch
from torch import Tensor

from attention.cases import fields
from regard.attention import capture
from regard.attention.observe import Observe
from regard.attention.scores import Additive
from regard.attention.tap import TapListener, listen, places_of
from regard.models import fused_bahdanau
from regard.models.decoders import OBSERVE_NOTHING, Bahdanau, DecoderState
from regard.models.rnn_encoder import EncoderOutput

WIDTH, HIDDEN, STATES = 6, 5, 8


def decoder(**how: object) -> Bahdanau:
    torch.manual_seed(0)
    asked = HIDDEN + (WIDTH if how.get("query_includes_input") else 0)
    return Bahdanau(WIDTH, HIDDEN, STATES, Additive(asked, 7, STATES), **how).double()  # type: ignore[arg-type]


def source(lengths: tuple[int, ...] = (4, 2, 3)) -> EncoderOutput:
    torch.manual_seed(1)
    states, values = (torch.randn(len(lengths), max(lengths), STATES, dtype=torch.float64) for _ in range(2))
    last = torch.randn(len(lengths), STATES, dtype=torch.float64)
    return EncoderOutput(states.requires_grad_(), values.requires_grad_(), torch.tensor(lengths), last)


def words(rows: int = 3, steps: int = 5) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(rows, steps, WIDTH, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each call of the fast loop took."""
    calls: list[int] = []
    real = fused_bahdanau.run_loop

    def counted(gates: Tensor, *others: object) -> fused_bahdanau.LoopOutput:
        calls.append(gates.size(1))
        return real(gates, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(fused_bahdanau, "run_loop", counted)
    return calls


@pytest.mark.parametrize("with_word", [False, True])
@pytest.mark.parametrize("lengths", [(4, 2, 3), (4, 4, 4), (1, 1, 1)])
def test_the_walk_and_its_gradients_are_those_of_the_plain_loop(
    lengths: tuple[int, ...], with_word: bool, walks: list[int]
) -> None:
    model, read, given = decoder(query_includes_input=with_word), source(lengths), words()
    fast = model(given, model.initial_state(read))
    assert walks == [5]
    plain = model(given, model.initial_state(read), Observe(weights=True))
    assert walks == [5]
    torch.testing.assert_close(fast.features, plain.features, rtol=1e-10, atol=1e-12)
    towards = torch.randn_like(fast.features)
    wanted = [*model.parameters(), read.states, read.values, given]
    for one, other in zip(
        torch.autograd.grad(fast.features, wanted, towards, allow_unused=True),
        torch.autograd.grad(plain.features, wanted, towards, allow_unused=True),
        strict=True,
    ):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_derivative_is_the_slope() -> None:
    model, read = decoder(), source()
    state = model.initial_state(read)
    assert state.memory is not None and model.cell.step_input is not None
    score, cell = model.score, model.cell
    assert isinstance(score, Additive)
    weights = fused_bahdanau.LoopWeights(
        score.query.weight, score.vector, cell.step_input.weight if cell.step_input else cell.state.weight,
        cell.state.weight, cell.state.bias,
    )  # fmt: skip
    asked = torch.randn(3, 5, 7, dtype=torch.float64)
    inputs = [model.cell.inputs(words()), asked, state.cells[0][0], state.memory.keys, state.memory.values]
    leaves = [x.detach().requires_grad_() for x in (*inputs, *weights)]
    hidden = state.memory.hidden

    def looped(*given: Tensor) -> tuple[Tensor, ...]:
        steps = fused_bahdanau.run_loop(*given[:5], hidden, fused_bahdanau.LoopWeights(*given[5:]))
        return steps.states, steps.contexts, steps.scores.softmax(-1), steps.scores.logsumexp(-1)

    assert torch.autograd.gradcheck(looped, leaves)
    for only in range(4):  # what is not used has no gradient to give

        def one(*given: Tensor, only: int = only) -> Tensor:
            return looped(*given)[only]

        assert torch.autograd.gradcheck(one, leaves, fast_mode=True)


ALL = Observe(weights=True, top=2, entropy=True, received=True, thumbnail=(1, 3), prepared=True, values=True)


@pytest.mark.parametrize("with_word", [False, True])
def test_capture_hears_the_loop_and_changes_no_bit(with_word: bool, walks: list[int]) -> None:
    model, read, given = decoder(query_includes_input=with_word), source(), words()
    wanted = [*model.parameters(), read.states, read.values, given]

    def trained() -> tuple[Tensor, ...]:
        vectors = model(given, model.initial_state(read)).vectors
        return vectors, *torch.autograd.grad(vectors.square().sum(), wanted, allow_unused=True)

    alone = trained()
    with capture(model, observe=ALL) as heard:
        listened = trained()
    assert walks == [5, 5]
    for one, other in zip(alone, listened, strict=True):
        assert (one is None) == (other is None) and (one is None or torch.equal(one, other))
    with torch.no_grad(), capture(model, observe=ALL) as plain:
        model(given, model.initial_state(read))
    assert walks == [5, 5]
    calls = heard.calls(heard.places[0]), plain.calls(plain.places[0])
    assert len(calls[0]) == 5
    for got, expected in zip(*calls, strict=True):
        for name, x in fields(expected).items():
            torch.testing.assert_close(fields(got)[name], x, rtol=1e-10, atol=1e-12)
        assert got.prepared is not None and expected.prepared is not None
        torch.testing.assert_close(got.prepared.tile(), expected.prepared.tile(), rtol=1e-10, atol=1e-12)
        assert torch.equal(got.values, expected.values)


def test_what_is_captured_in_training_has_a_gradient() -> None:
    model, read, given = decoder(), source(), words()
    towards = torch.randn(3, 5, 4, dtype=torch.float64)
    told = []
    for observe in (OBSERVE_NOTHING, Observe(weights=True)):  # the second goes step by step
        with capture(model) as heard:
            model(given, model.initial_state(read), observe)
        calls = heard.calls(heard.places[0])
        weights, lse = torch.cat([got.weights for got in calls], 1), torch.cat([got.lse for got in calls], 1)
        total = (weights * towards).sum() + lse.square().sum()
        told.append(torch.autograd.grad(total, [model.score.vector, model.cell.state.weight, read.states, given]))
    for one, other in zip(*told, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_who_may_answer_is_asked_at_every_step(walks: list[int]) -> None:
    model, read, given = decoder(), source((4, 4, 4)), words()
    even = TapListener(places_of(model), Observe(weights=True), lambda _, got: torch.full_like(got.weights, 0.25))
    with listen(even):
        parts = model(given, model.initial_state(read)).features
    assert walks == []
    mean = read.values.mean(1, keepdim=True).expand(-1, 5, -1)
    torch.testing.assert_close(parts[..., HIDDEN : HIDDEN + STATES], mean)


@pytest.mark.parametrize("how", [{"cell": "lstm"}, {"coverage": True}])
def test_what_the_walk_does_not_serve_goes_the_plain_way(how: dict[str, object], walks: list[int]) -> None:
    model = decoder(**how)
    assert model(words(), model.initial_state(source()), OBSERVE_NOTHING).vectors.shape == (3, 5, WIDTH)
    assert walks == []


def test_steps_give_what_the_walk_gives() -> None:
    model, given = decoder(), words()
    state: DecoderState = model.initial_state(source())
    whole = model(given, state).vectors
    for t in range(given.size(1)):
        found, state = model.step(given[:, t], state)
        torch.testing.assert_close(found.vectors[:, 0], whole[:, t], rtol=1e-10, atol=1e-12)
