"""transformers models with attn_implementation="regard" compile as one graph, and are heard in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from regard.attention import Observe, capture
from regard.hub import enable

transformers = pytest.importorskip("transformers")

V = 50
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": V}
REGARD = {"attn_implementation": "regard"}
OBSERVE = Observe(top=8, entropy=True)

MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaModel(transformers.LlamaConfig(**SIZES, num_key_value_heads=2, **REGARD)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**SIZES, **REGARD)),
    "gpt2": lambda: transformers.GPT2Model(
        transformers.GPT2Config(
            n_embd=16, n_layer=2, n_head=4, vocab_size=V, n_positions=64, bos_token_id=0, eos_token_id=1, **REGARD
        )
    ),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    enable()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run(called: Callable[..., Any], length: int, **how: Any) -> Any:
    ids = torch.randint(0, V, (2, length), generator=torch.Generator().manual_seed(length))
    real = torch.ones(2, length, dtype=torch.long)
    real[0, length - 2 :] = 0
    with torch.no_grad():
        return called(ids, attention_mask=real, use_cache=False, **how)


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_is_heard_as_an_uncompiled_one(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    counter = CompileCounterWithBackend("eager")
    compiled: Any = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    alone: Tensor = run(compiled, 12).last_hidden_state
    torch.testing.assert_close(alone, run(model, 12).last_hidden_state)
    graphs = []
    for length in (12, 9, 17):
        with capture(model, observe=OBSERVE) as want:
            run(model, length)
        with capture(compiled, observe=OBSERVE) as heard:
            found = run(compiled, length).last_hidden_state
        graphs.append(counter.frame_count)
        assert list(heard) == list(want) and len(heard) == 2 and not heard.unheard
        for place in want:
            one, other = heard[place], want[place]
            assert one.top is not None and other.top is not None
            for field in ("output", "lse", "entropy"):
                torch.testing.assert_close(getattr(one, field), getattr(other, field))
            torch.testing.assert_close(one.top.values, other.top.values)
            assert torch.equal(one.top.indices, other.top.indices)
        if length == 12:
            assert torch.equal(found, alone)
    run(compiled, 12)
    assert set(graphs) == {counter.frame_count}


def test_weights_of_a_compiled_model() -> None:
    """transformers installs its hooks for them on the first call, which torch.compile does not trace."""
    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    want = run(model, 7, output_attentions=True).attentions
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    found = run(compiled, 7, output_attentions=True).attentions
    assert len(found) == len(want) == 2
    for got, expected in zip(found, want, strict=True):
        torch.testing.assert_close(got, expected)
