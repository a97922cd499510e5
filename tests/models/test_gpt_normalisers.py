"""GPT with attention sinks, soft caps, sparsemax and entmax: the laws of any GPT, and all that is done with one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from faithfulness.toys import QUICK
from page.small import TOKENIZER
from regard.adapters.causal_lm import CausalLMAdapter
from regard.attention import Observe, capture
from regard.errors import CheckpointError
from regard.faithfulness.audit import audit
from regard.hub import convert
from regard.inspection.interventions import intervene
from regard.inspection.record.collect import collect
from regard.models.config import GPTConfig
from regard.models.gpt import GPT

KINDS: dict[str, dict[str, object]] = {
    "sink": {"normalise": "sink"},
    "soft cap": {"softcap": 3.0},
    "sink and soft cap": {"normalise": "sink", "softcap": 3.0, "key_heads": 2},
    "sparsemax": {"normalise": "sparsemax"},
    "entmax": {"normalise": "entmax"},
}
by_kind = pytest.mark.parametrize("kind", KINDS)
TEXT = "the black cat sleeps on the old chair ."


def gpt(kind: str) -> GPT:
    torch.manual_seed(0)
    model = GPTConfig(vocabulary=len(TOKENIZER), width=16, layers=2, heads=4, max_positions=40, **KINDS[kind]).build()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model.eval()


def tokens(*shape: int) -> Tensor:
    return torch.randint(5, len(TOKENIZER), shape, generator=torch.Generator().manual_seed(1))


@by_kind
def test_steps_from_a_cache_equal_one_pass_and_capturing_changes_no_bit(kind: str) -> None:
    model, inputs = gpt(kind), tokens(2, 9)
    whole, caches = model(inputs), model.caches()
    steps = [model(inputs[:, at : at + 1], None, caches) for at in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    with capture(model, observe=Observe(weights=True)) as heard:
        assert torch.equal(model(inputs), whole)
    left = 1 - heard["decoder.1.self"].weights.sum(-1)
    assert left.max() > 0.1 if "sink" in kind else left.abs().max() < 1e-5
    if kind in ("sparsemax", "entmax"):
        visible = torch.ones(9, 9).tril().bool()
        assert (heard["decoder.1.self"].weights[..., visible] == 0).any()


@by_kind
def test_every_parameter_learns(kind: str) -> None:
    model = gpt(kind).train()
    model(tokens(2, 9)).square().sum().backward()
    assert all(one.grad is not None and one.grad.abs().max() > 0 for one in model.parameters())


@by_kind
def test_its_record_has_every_weight(kind: str) -> None:
    model = gpt(kind)
    record = collect(CausalLMAdapter(model, TOKENIZER, "gpt", "random"), TEXT)
    inputs = torch.tensor([TOKENIZER.encode(TEXT).ids])
    with capture(model, observe=Observe(weights=True)) as heard:
        model(inputs)
    for place in record.places:
        weights = heard[place.name].weights[0]
        assert weights.size(-2) == place.T
        for head in range(4):
            torch.testing.assert_close(place.tile(head), weights[head], atol=1e-3, rtol=0)


@by_kind
def test_interventions_are_exact(kind: str) -> None:
    model, inputs = gpt(kind), tokens(2, 9)
    with intervene(model, "decoder.0.self", weights=lambda own: own):
        torch.testing.assert_close(model(inputs), model(inputs))
    with intervene(model, "decoder.1.self", weights="uniform"), capture(model, observe=Observe(weights=True)) as heard:
        assert not torch.allclose(model(inputs), gpt(kind)(inputs))
    call = heard["decoder.1.self"]
    torch.testing.assert_close(call.weights[..., 4, :5], torch.full((2, 4, 5), 0.2))
    assert call.sink is None or call.sink.abs().max() < 1e-6


def test_it_can_be_audited() -> None:
    adapter = CausalLMAdapter(gpt("sink and soft cap"), TOKENIZER, "gpt", "random")
    report = audit(adapter, [TEXT, "a dog hit me"], settings=QUICK)
    assert report.facts["decisions"] == 2


@by_kind
def test_an_export_that_would_lose_it_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no architecture of Hugging Face matches"):
        convert.save(gpt(kind), tmp_path)
