"""Models of transformers under other weights: their own change no bit of "plain", and rows count while they write."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from parity.transformers_parity import tiny, tokens
from regard.attention import attend, capture
from regard.errors import PlaceError
from regard.hub import attention_interface
from regard.inspection.interventions import intervene

BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32}


def same(weights: Tensor) -> Tensor:
    return weights


def made(kind: str, how: str) -> Any:
    attention_interface.enable()
    model: Any = tiny(kind, **(BERT if kind == "BertModel" else GPT2))
    model.set_attn_implementation(how)
    return model


@pytest.mark.parametrize("kind", ["BertModel", "GPT2LMHeadModel"])
@torch.no_grad()
def test_their_own_weights_change_no_bit_of_plain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = made(kind, "regard"), tokens(2, 9)
    before = model(ids)[0]
    with intervene(model, "*attn" if kind.startswith("GPT2") else "*.attention.self", weights=same):
        found = model(ids)[0]
    assert torch.equal(model(ids)[0], before)
    monkeypatch.setattr(attention_interface, "attend", partial(attend, backend="plain"))
    assert torch.equal(found, model(ids)[0])
    other = made(kind, "sdpa")
    with intervene(other, weights=same):
        torch.testing.assert_close(other(ids)[0], found)


@pytest.mark.parametrize("how", ["regard", "sdpa", "eager"])
@torch.no_grad()
def test_a_head_that_is_switched_off_is_one_without_its_columns(how: str) -> None:
    model, ids = made("BertModel", how), tokens(2, 9)
    place = "encoder.layer.1.attention.self"
    with intervene(model, place, heads=[1, 2], weights="zero"):
        silenced = model(ids)[0]
    joining = model.encoder.layer[1].attention.output.dense.weight
    joining[:, 4:12] = 0
    torch.testing.assert_close(model(ids)[0], silenced)


@pytest.mark.parametrize("how", ["regard", "sdpa", "eager"])
@torch.no_grad()
def test_rows_are_counted_while_a_model_writes(how: str) -> None:
    model, ids = made("GPT2LMHeadModel", how), tokens(1, 5)
    rows, place = [3, 6, 7], "transformer.h.0.attn"
    with intervene(model, place, rows=rows, weights="uniform"):
        written = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    with intervene(model, place, rows=rows, weights="uniform"), capture(model, place) as heard:
        again = model(written[:, :-1]).logits.argmax(-1)
    assert again[0, 4:].tolist() == written[0, 5:].tolist()
    flat = [len(set(row[: at + 1].tolist())) == 1 for at, row in enumerate(heard[place].weights[0, 1])]
    assert [at for at, one in enumerate(flat) if one and at] == rows


@pytest.mark.parametrize("how", ["regard", "eager"])
def test_what_computes_no_attention_is_refused(how: str) -> None:
    model = made("BertModel", how)
    with pytest.raises(PlaceError, match="No attention was computed"), intervene(model, weights="zero"):
        model.embeddings(tokens(1, 4))
