"""Laws of GPT: no look ahead, cached steps equal one pass, texts apart, rows alone, tied weights, and GPT-2's start."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch._dynamo.testing import CompileCounter

from regard.attention import capture
from regard.attention.positions import Rotary, Sinusoidal
from regard.decoding import Beam, Rules
from regard.errors import SettingError, ShapeError
from regard.models.blocks import LLAMA
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


@by_positions
@settings(max_examples=18)
@given(read=st.integers(0, 8), end=st.sampled_from([None, 3]))
def test_stepping_equals_one_pass(positions, read, end) -> None:
    model, inputs = gpt(positions), tokens(3, 9)
    documents = None if end is None else (inputs == end).cumsum(1)
    with torch.no_grad():
        state = model.start(inputs[:, :read], torch.full((3,), read), end)
        whole = model(inputs, documents).log_softmax(-1)
        for at in range(read, 9):
            log_probs, weights, state = model.step(state, inputs[:, at])
            torch.testing.assert_close(log_probs, whole[:, at])
            assert weights is None
    assert end is None or (inputs == end).any()


def test_a_long_prompt_is_read() -> None:
    model, inputs = gpt(Rotary(WIDTH // HEADS)), tokens(2, 260)
    documents = (inputs == 3).cumsum(1)
    with torch.no_grad():
        state = model.start(inputs[:, :-1], torch.full((2,), inputs.size(1) - 1), end=3)
        log_probs, _, _ = model.step(state, inputs[:, -1])
        torch.testing.assert_close(log_probs, model(inputs, documents)[:, -1].log_softmax(-1))


@by_positions
@settings(max_examples=20)
@given(rows=st.lists(st.integers(0, 2), min_size=1, max_size=5), cut=st.integers(0, 6), end=st.sampled_from([None, 3]))
def test_reordering_equals_starting_from_other_rows(positions, rows, cut, end) -> None:
    model, inputs, order = gpt(positions), tokens(3, 8), torch.tensor(rows)
    read = cut // 2  # the others are stepped with, before and after they are reordered
    with torch.no_grad():
        state = model.start(inputs[:, :read], torch.full((3,), read), end)
        for at in range(read, cut):
            _, _, state = model.step(state, inputs[:, at])
        state = model.reorder(state, order)
        other = model.start(inputs[order, :cut], torch.full((len(rows),), cut), end)
        for at in range(cut, 8):
            log_probs, _, state = model.step(state, inputs[order, at])
            expected, _, other = model.step(other, inputs[order, at])
            torch.testing.assert_close(log_probs, expected)


def test_a_reordered_state_is_its_own() -> None:
    """Two ways of going on from one state do not write into each other's caches."""
    model, inputs, both = gpt(), tokens(2, 6), torch.arange(2)
    with torch.no_grad():
        state = model.start(inputs[:, :3], torch.full((2,), 3))
        _, _, state = model.step(state, inputs[:, 3])  # now the caches have room to spare
        one, other = model.reorder(state, both), model.reorder(state, both)
        _, _, one = model.step(one, inputs[:, 4])
        _, _, other = model.step(other, (inputs[:, 4] + 1) % VOCABULARY)
        log_probs, _, _ = model.step(one, inputs[:, 5])
        torch.testing.assert_close(log_probs, model(inputs)[:, -1].log_softmax(-1))


@by_positions
@pytest.mark.parametrize("end", [None, 3])
def test_prompts_of_different_lengths_go_on_as_alone(positions, end) -> None:
    model, inputs, lengths = gpt(positions), tokens(4, 6), torch.tensor([6, 0, 3, 5])
    with torch.no_grad():
        state = model.start(inputs, lengths, end)
        alone = [
            model.start(row[None, :length], length[None], end) for row, length in zip(inputs, lengths, strict=True)
        ]
        for said in tokens(4, 4).T:
            log_probs, _, state = model.step(state, said)
            for row in range(4):
                expected, _, alone[row] = model.step(alone[row], said[row : row + 1])
                torch.testing.assert_close(log_probs[row : row + 1], expected)
        rows = torch.tensor([2, 2, 0])
        log_probs, _, _ = model.step(model.reorder(state, rows), torch.tensor([1, 2, 1]))
        for at, (row, token) in enumerate([(2, 1), (2, 2), (0, 1)]):
            copied = model.reorder(alone[row], torch.tensor([0]))
            torch.testing.assert_close(log_probs[at : at + 1], model.step(copied, torch.tensor([token]))[0])


@by_positions
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_equal_rows_alone(positions, side) -> None:
    model, inputs, lengths = gpt(positions), tokens(3, 7), torch.tensor([7, 2, 5])
    padded = 7 - lengths if side == "left" else None
    together = model(inputs, padded=padded)
    for row, length in enumerate(lengths.tolist()):
        real = slice(7 - length, 7) if side == "left" else slice(0, length)
        torch.testing.assert_close(together[row, real], model(inputs[row : row + 1, real])[0])


def test_only_the_last_few_are_answered() -> None:
    model, inputs = gpt(), tokens(2, 7)
    whole = model(inputs)
    for count in (0, 1, 3):
        torch.testing.assert_close(model(inputs, last=count), whole[:, 7 - count :])


@by_positions
def test_the_future_does_not_change_a_bit(positions) -> None:
    """In the precision and over the lengths at which blocks of a fused kernel work."""
    long = GPT(
        VOCABULARY,
        32,
        2,
        2,
        100 if isinstance(positions, int) else type(positions)(16 if isinstance(positions, Rotary) else 32),
    )
    inputs = tokens(2, 90)
    other = inputs.clone()
    other[:, 47:] = (other[:, 47:] + 1) % VOCABULARY
    with torch.no_grad():
        one, two = long(inputs), long(other)
    assert torch.equal(one[:, :47], two[:, :47]) and not torch.equal(one[:, 47:], two[:, 47:])


@by_positions
def test_a_fixed_cache_equals_a_growing_one(positions) -> None:
    model, inputs = gpt(positions), tokens(3, 9)
    fixed, growing = model.caches(LONGEST), model.caches()
    with torch.no_grad():
        for part in inputs.tensor_split([4, 5, 6], 1):
            assert torch.equal(model(part, None, fixed), model(part, None, growing))
        memory = fixed[0].contents()[0].data_ptr()
        model(tokens(3, 1), None, fixed)
    assert fixed[0].contents()[0].data_ptr() == memory and fixed[0].length == 10


def test_llama_is_the_same_with_other_values() -> None:
    torch.manual_seed(0)
    style = replace(LLAMA, norm=partial(nn.RMSNorm, eps=1e-6), key_heads=1, head_dim=6)
    model = GPT(VOCABULARY, WIDTH, 2, HEADS, Rotary(6), feedforward_dim=20, block=style, tied=False).double()
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    assert shapes["decoder.1.self.project.joint.weight"] == (2 * 6 + 2 * 6, WIDTH)
    assert shapes["decoder.1.self.out.weight"] == (WIDTH, 12) and shapes["output.weight"] == (VOCABULARY, WIDTH)
    assert not any(name.endswith("bias") for name in shapes) and "decoder.0.feed.gate.weight" in shapes
    inputs = tokens(2, 7)
    with torch.no_grad():
        state = model.start(inputs[:, :5], torch.tensor([5, 3]))
        log_probs, _, _ = model.step(state, inputs[:, 5])
        torch.testing.assert_close(log_probs[:1], model(inputs[:1, :6])[:, -1].log_softmax(-1))
        short = torch.cat((inputs[1:, :3], inputs[1:, 5:6]), 1)
        torch.testing.assert_close(log_probs[1:], model(short)[:, -1].log_softmax(-1))


def test_it_has_the_published_sizes() -> None:
    with torch.device("meta"):
        small = GPT(50257, 768, 12, 12, 1024)
        llama = GPT(32000, 4096, 32, 32, Rotary(128), feedforward_dim=11008, block=LLAMA, tied=False)
    assert sum(one.numel() for one in small.parameters()) == 124_439_808  # GPT-2
    assert sum(one.numel() for one in llama.parameters()) == 6_738_415_616  # Llama 2 7B


def test_every_layer_can_be_asked() -> None:
    model, inputs = gpt(), tokens(2, 5)
    states = model.layers(inputs)
    assert [tuple(one.shape) for one in states] == [(2, 5, WIDTH)] * 3
    torch.testing.assert_close(states[0], model.positions(model.embedding(inputs)))
    torch.testing.assert_close(states[-1] @ model.embedding.weight.T, model(inputs))


@by_positions
def test_it_can_be_searched(positions) -> None:
    model, inputs = gpt(positions), tokens(3, 5)
    state = model.start(inputs[:, :-1], torch.full((3,), 4))
    rules = Rules(end=0, max_length=7)
    for row, (best, *_) in enumerate(Beam(4, n_best=2)(model, state, inputs[:, -1], rules)):
        steps = [*best.tokens, 0] if best.finished else best.tokens
        text = torch.cat((inputs[row], torch.tensor(steps[:-1]).long()))
        said = model(text[None])[0, 4:].log_softmax(-1).gather(1, torch.tensor(steps)[:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(best.log_probs), said.float())


def test_how_long_it_reaches() -> None:
    assert [gpt(positions).max_positions for positions in POSITIONS] == [LONGEST, None, None]


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
        model.embedding.weight[VOCABULARY - 1] += model.final_norm(torch.ones(WIDTH).double().cumsum(0))
    assert (model(tokens(1, 3)) - before)[..., VOCABULARY - 1].abs().min() > 1e-6


def test_it_begins_as_gpt_2_does() -> None:
    torch.manual_seed(0)
    model = GPT(500, 64, 8, 4, 100, feedforward_dim=200)
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
    with pytest.raises(ShapeError, match="lengths from 2 to 4, expected 0 to 3, the columns of the prompts"):
        gpt().start(tokens(2, 3), torch.tensor([2, 4]))
    with pytest.raises(SettingError, match="tokens from 2 to 11, expected ids from 0 to 10, its vocabulary"):
        gpt().start(torch.tensor([[2, 11]]), torch.tensor([2]))
    caches = gpt().caches(4)
    with torch.no_grad(), pytest.raises(ShapeError, match="5 keys, expected at most max_length=4"):
        gpt()(tokens(2, 5), None, caches)


@pytest.mark.long
def test_a_fixed_cache_is_compiled_once() -> None:
    """Once for a prompt and once for a step, however many steps there are."""
    torch._dynamo.reset()
    model, inputs, counter = gpt(layers=1).float(), tokens(2, 10), CompileCounter()
    quick, fixed, growing = torch.compile(model, backend=counter), model.caches(LONGEST), model.caches()
    counts = []
    with torch.no_grad():
        for part in inputs.tensor_split((4, *range(5, 10)), 1):
            torch.testing.assert_close(quick(part, None, fixed), model(part, None, growing))
            counts.append(counter.frame_count)
    assert counts[-1] == counts[2] > 0
