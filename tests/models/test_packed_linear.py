"""Packed models say what the ones that they were made of say, and leave those as they were."""

import pytest
import torch

from regard.attention.positions import Rotary
from regard.decoding import Greedy, Rules
from regard.models.blocks import GPT2, LLAMA
from regard.models.gpt import GPT
from regard.models.packed_linear import PackedLinear, pack_for_decoding


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("style", "tied"), [(GPT2, True), (LLAMA, False)], ids=["gpt2", "llama"])
def test_a_packed_model_says_the_same(rows, style, tied) -> None:
    torch.manual_seed(0)
    model = GPT(50, 32, 2, 4, Rotary(8), block=style, tied=tied).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(20)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    inputs, lengths = torch.randint(50, (rows, 7)), torch.full((rows,), 6)
    quick = pack_for_decoding(model, rows)
    assert sum(isinstance(one, PackedLinear) for one in quick.modules()) > 8
    with torch.no_grad():
        torch.testing.assert_close(quick(inputs), model(inputs))
    rules = Rules(None, 9)
    one, other = (Greedy()(m, m.start(inputs[:, :6], lengths), inputs[:, 6], rules) for m in (model, quick))
    assert [text.tokens for (text,) in one] == [text.tokens for (text,) in other]
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not any(isinstance(one, PackedLinear) for one in model.modules())


def test_what_gains_nothing_stays_as_it_is() -> None:
    model = GPT(50, 32, 2, 4, 10).double()
    assert pack_for_decoding(model, 1) is model
