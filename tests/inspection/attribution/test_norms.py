"""Norms of transformed values equal those of the vectors; shares do not depend on the tile."""

import pytest
import torch
from tests.inspection.attribution.records import place

from regard.attention.layers import MultiHead, SeparateQKV
from regard.attention.masks import Causal, Padding
from regard.errors import RecordError, ShapeError
from regard.inspection.attribution.norms import norm_based_attention, transformed_norms, value_norms

close = torch.testing.assert_close
N = 276


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_value_norms_use_the_heads_part_of_the_output_matrix(key_heads: int) -> None:
    torch.manual_seed(0)
    layer = MultiHead(8, SeparateQKV(8, 4, key_heads=key_heads)).double()
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    values = layer.project.keys_values(x)[1][0]  # (Hk, S, D)
    got = value_norms(values, layer.out.weight)
    assert got.shape == (4, 5) and not got.requires_grad
    for head in range(4):
        for key in range(5):
            joined = torch.zeros(8, dtype=torch.float64)  # all heads but one say nothing
            joined[2 * head : 2 * head + 2] = values[head // (4 // key_heads), key]
            sent = layer.out(joined) - layer.out.bias
            close(got[head, key], sent.norm())


def test_weights_are_scaled_by_norms() -> None:
    norms = torch.rand(2, N, generator=torch.Generator().manual_seed(1))
    seen = place(T=N, mask=Causal() & Padding([N], queries=[N - 10]), value_norms=norms)
    whole = seen.tile(1) * norms[1]
    shares = whole / whole.sum(-1, keepdim=True).clamp(min=1e-30)
    close(norm_based_attention(seen, 1), shares)
    close(norm_based_attention(seen, 1).sum(-1), torch.cat((torch.ones(N - 10), torch.zeros(10))))
    both = whole + seen.tile(0) * norms[0]
    close(norm_based_attention(seen), both / both.sum(-1, keepdim=True).clamp(min=1e-30))


def test_without_an_output_projection_values_count_themselves() -> None:
    model, values = torch.nn.ModuleDict({"attend": MultiHead(8, SeparateQKV(8, 4))}), torch.randn(4, 5, 2)
    close(transformed_norms(model, "attend", values, 4), value_norms(values, model["attend"].out.weight))
    close(transformed_norms(model, "attend", values[:1], 1), values[:1].norm(dim=-1))  # the matrix is of other heads
    bare = torch.nn.ModuleDict({"attend": torch.nn.Identity()})
    close(transformed_norms(bare, "attend", values, 4), values.norm(dim=-1))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="heads"):
        value_norms(torch.ones(2, 5, 3), torch.ones(8, 8))
    with pytest.raises(ShapeError, match="divides 4"):
        value_norms(torch.ones(3, 5, 2), torch.ones(8, 8))
    with pytest.raises(RecordError, match="no value norms"):
        norm_based_attention(place(), 0)
    with pytest.raises(RecordError, match="head 2"):
        norm_based_attention(place(value_norms=torch.ones(2, 6)), 2)
