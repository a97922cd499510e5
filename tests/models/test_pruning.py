"""A model without heads says what it says while they are silent, and is smaller."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from regard.attention.layers import FusedQKV, MultiHead, SeparateQKV
from regard.attention.masks import Causal
from regard.attention.normalise import Sink
from regard.attention.positions import Rotary
from regard.errors import PlaceError, SettingError
from regard.inspection.interventions import intervene
from regard.models.pruning import find_multi_heads, prune_heads, query_group_size
from regard.models.transformer import TransformerSize, build_transformer

KINDS = {
    "separate": (lambda: SeparateQKV(24, 6), [0, 3, 4]),
    "separate, one key": (lambda: SeparateQKV(24, 6, key_heads=1), [1, 5]),
    "separate, a group": (lambda: SeparateQKV(24, 6, key_heads=3), [2, 3]),
    "separate, one of each group": (lambda: SeparateQKV(24, 6, key_heads=3, bias=False), [0, 3, 5]),
    "fused": (lambda: FusedQKV(24, 6), [0, 5]),
    "fused, wide": (lambda: FusedQKV(24, 6, width=8, bias=False), [1, 2, 3, 4, 5]),
    "fused, a group": (lambda: FusedQKV(24, 6, key_heads=2), [3, 4, 5]),
}


def numbers(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_without_heads_is_as_they_were_silent(kind: str) -> None:
    torch.manual_seed(0)
    project, heads = KINDS[kind]
    rotary = Rotary(8 if "wide" in kind else 4)
    attention = MultiHead(24, project(), rotary=rotary, normalise=Sink(torch.randn(6))).double().eval()
    x, before = torch.randn(2, 7, 24).double(), numbers(attention)
    with intervene(attention, heads=heads, weights="zero"):
        silent = attention(x, mask=Causal())
    state = torch.get_rng_state()
    smaller = prune_heads(attention, {"": heads})
    assert torch.equal(state, torch.get_rng_state()), "no chance is used up"
    torch.testing.assert_close(smaller(x, mask=Causal()), silent)
    assert smaller.project.heads == 6 - len(heads) and numbers(smaller) < before
    if isinstance(smaller.project, SeparateQKV):
        memory = torch.randn(2, 3, 24).double()
        assert smaller(x, memory).shape == x.shape


def test_a_whole_translator() -> None:
    torch.manual_seed(0)
    model = build_transformer(11, TransformerSize(2, 16, 4, 24)).eval()
    ids, lengths, target = torch.randint(3, 11, (2, 6)), torch.tensor([6, 4]), torch.randint(3, 11, (2, 5))
    heads = {"encoder.blocks.1.self": [0, 2], "decoder.0.cross": [1, 2, 3], "decoder.1.self": [3]}
    with torch.no_grad():
        with ExitStack() as stack:
            for place, some in heads.items():
                stack.enter_context(intervene(model, place, heads=some, weights="zero"))
            silent = model(ids, lengths, target)[0].log_probs()
        whole, frozen = numbers(model), model.encoder.requires_grad_(False)
        prune_heads(model, heads)
        torch.testing.assert_close(model(ids, lengths, target)[0].log_probs(), silent)
    assert numbers(model) == whole - 6 * (4 * 4 * 16 + 3 * 4)  # four matrices of 4 x 16 a head, three biases of 4
    assert not any(one.requires_grad for one in frozen.parameters()), "what did not learn does not begin to"
    assert {place: one.project.heads for place, one in find_multi_heads(model).items()} == {
        "encoder.blocks.0.self": 4,
        "encoder.blocks.1.self": 2,
        "decoder.0.self": 4,
        "decoder.0.cross": 1,
        "decoder.1.self": 3,
        "decoder.1.cross": 4,
    }


def test_what_cannot_be_cut_is_refused_in_words() -> None:
    grouped = MultiHead(24, FusedQKV(24, 6, key_heads=2))
    assert query_group_size(grouped) == 3
    with pytest.raises(SettingError, match=r"\[0\] of 6.*as many of each 3 that share a key head, or all 3"):
        prune_heads(grouped, {"": [0]})
    with pytest.raises(SettingError, match="All 2 heads at '' are pruned; keep at least one"):
        prune_heads(MultiHead(24, 2), {"": [0, 1]})
    with pytest.raises(SettingError, match=r"heads \[2\].*different heads from 0 to 1"):
        prune_heads(MultiHead(24, 2), {"": [2]})
    with pytest.raises(PlaceError, match="Unknown multi-head attention 'encoder'"):
        prune_heads(MultiHead(24, 2), {"encoder": [1]})
