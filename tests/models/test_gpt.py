"""Laws of GPT: no look ahead, cached steps equal one pass, texts apart, rows alone, tied weights, and GPT-2's start."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import capture
from regard.attention.positions import Rotary, Sinusoidal
from regard.errors import SettingError, ShapeError
from regard.models.gpt import GPT

VOCABULARY, WIDTH, HEADS, LONGEST = 11, 8, 2, 12
POSITIONS = [LONGEST, Sinusoidal(WIDTH), Rotary(WIDTH // HEADS)]
by_positions = pytest.mark.parametrize("positions", POSITIONS, ids=["learned", "sinusoidal", "rotary"])


def gpt(positions=LONGEST, layers: int = 2) -> GPT:
    torch.manual_seed(0)
    model = GPT(VOCABULARY, WIDTH, layers, HEADS, positions).double()
    with torch.no_grad():  # fresh weights are too small to tell much
        for parameter in model.parameters():
            parameter.mul_(10)
    return model


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


@by_positions
def test_a_later_token_never_changes_what_came_before(positions) -> None:
    model, inputs = gpt(positions), tokens(2, 9)
    before = model(inputs)
    assert before.shape == (2, 9, VOCABULARY)
    for place in range(1, 9):
        other = inputs.clone()
        other[:, place] = (other[:, place] + 1) % VOCABULARY
        after = model(other)
        torch.testing.assert_close(after[:, :place], before[:, :place])
        assert (after[:, place:] - before[:, place:]).abs().amax((0, 2)).min() > 1e-6


@by_positions
@given(cuts=st.lists(st.integers(1, 8), max_size=4, unique=True).map(sorted))
def test_cached_steps_equal_one_pass(positions, cuts) -> None:
    model, inputs = gpt(positions), tokens(3, 9)
    caches = model.caches()
    assert len(caches) == 2
    with torch.no_grad():
        steps = [model(part, None, caches) for part in inputs.tensor_split(cuts, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), model(inputs))


def test_texts_in_one_row_are_kept_apart() -> None:
    model, inputs = gpt(Rotary(WIDTH // HEADS)), tokens(1, 9)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2]])
    apart = model(inputs, documents)
    for first, last in ((0, 4), (4, 7), (7, 9)):  # rotary positions know distances alone
        torch.testing.assert_close(apart[:, first:last], model(inputs[:, first:last]))
    assert (apart - model(inputs))[:, 4:].abs().max() > 1e-3


def test_cached_steps_keep_texts_apart_too() -> None:
    model, inputs = gpt(), tokens(1, 9)
    documents, caches = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2]]), model.caches()
    steps = [model(inputs[:, at : at + 1], documents[:, : at + 1], caches) for at in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), model(inputs, documents))


def test_rows_alone_equal_the_batch() -> None:
    model, inputs = gpt(), tokens(3, 7)
    alone = torch.cat([model(row[None]) for row in inputs])
    torch.testing.assert_close(alone, model(inputs))


@pytest.mark.parametrize("documents", [None, torch.zeros(0, 4, dtype=torch.long)])
def test_no_rows_make_a_loss_of_zero_with_gradients(documents) -> None:
    model = gpt()
    logits = model(tokens(0, 4), documents)
    assert logits.shape == (0, 4, VOCABULARY)
    logits.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name


def test_output_and_embedding_are_one_parameter() -> None:
    model = gpt()
    sized = [name for name, parameter in model.named_parameters() if VOCABULARY in parameter.shape]
    assert sized == ["embedding.weight"]
    before = model(tokens(1, 3))
    with torch.no_grad():
        model.embedding.weight[VOCABULARY - 1] += model.norm(torch.ones(WIDTH).double().cumsum(0))
    assert (model(tokens(1, 3)) - before)[..., VOCABULARY - 1].abs().min() > 1e-6


def test_it_begins_as_gpt_2_does() -> None:
    torch.manual_seed(0)
    model = GPT(500, 64, 8, 4, 100, hidden=200)
    expected = {"out.weight": 0.02 / 4, "outer.weight": 0.02 / 4}  # 1 / sqrt(2 x 8 layers)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert parameter.unique().tolist() == [float(name.endswith("weight"))], name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            std = next((value for end, value in expected.items() if name.endswith(end)), 0.02)
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
    loss = torch.nn.functional.cross_entropy(model(torch.arange(100)[None])[0], torch.arange(1, 101))
    assert loss.item() == pytest.approx(torch.tensor(500.0).log().item(), abs=0.2)


def test_every_parameter_learns() -> None:
    model = gpt()
    model(tokens(2, LONGEST)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_it_is_heard() -> None:
    model = gpt()
    with capture(model, "*.self") as heard:
        model(tokens(2, 5))
    assert heard.places == ["decoder.0.self", "decoder.1.self"]
    weights = heard["decoder.1.self"].weights
    assert weights.shape == (2, HEADS, 5, 5) and not weights.triu(1).any()


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(ShapeError, match=r"got position 12, expected at most 11"):
        gpt()(tokens(1, LONGEST + 1))
    with pytest.raises(SettingError, match="3 heads for a width of 8"):
        GPT(VOCABULARY, WIDTH, 1, 3, LONGEST)
    with pytest.raises(SettingError, match="layers=0"):
        GPT(VOCABULARY, WIDTH, 0, HEADS, LONGEST)
