"""A borrowed model is restored, whatever happened inside the block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
from torch import nn

from faithfulness.toys import QUICK, TEXTS, TOKENIZER, bert, classifier, filler, language_model, translating
from parity.test_attention_interface import made
from parity.test_record import tokenizer
from regard import hub
from regard.adapters import adapter, borrow_model
from regard.adapters.borrow import _configs
from regard.attention import capture
from regard.errors import RegardError
from regard.faithfulness.audit import audit
from regard.inspection.atlas.head_atlas import atlas
from regard.inspection.interventions import intervene
from regard.page.view import look

transformers = pytest.importorskip("transformers")
hub.enable()


class Enough(Exception):
    pass


def state(model: nn.Module) -> dict[str, Any]:
    """All that a borrower could leave changed."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "training": [module.training for module in model.modules()],
        "hooks": [len(getattr(module, name)) for module in model.modules() for name in hooks],
        "forward": [vars(module).get("forward") for module in model.modules()],
        "requires_grad": [weight.requires_grad for weight in model.parameters()],
        "grad": [weight.grad for weight in model.parameters()],
        "attention": [config._attn_implementation for config in _configs(model)],
        "random": torch.get_rng_state().tolist(),
    }


def half_trained(model: nn.Module) -> nn.Module:
    """In training, but for one frozen part of it."""
    model.train()
    first = next(iter(model.children()))
    first.eval()
    next(first.parameters()).requires_grad_(False)
    return model


def stop(more: int) -> None:
    raise Enough


OURS = {
    "classifier": (lambda: classifier(reads=True).model, TEXTS),
    "bert": (lambda: bert("pooler").model, TEXTS),
    "filler": (lambda: filler().model, TEXTS),
    "gpt": (lambda: language_model().model, TEXTS),
    "translator": (lambda: translating("transformer").model, [("the film was bad", "a cat saw it")]),
}
THEIRS = {"bert": ["the [MASK] sleeps"], "gpt2": ["the cat sleeps . the dog"], "bart": [("the cat sleeps", "a dog .")]}
SHORT = "the cat sleeps"


@pytest.mark.parametrize("name", OURS)
def test_audit_and_look_restore_a_model_of_ours(name: str) -> None:
    make, examples = OURS[name]
    model = half_trained(make())
    before = state(model)
    report = audit(model, examples[:2], tokenizer=TOKENIZER, settings=QUICK)
    assert report.facts["decisions"] and state(model) == before
    given = examples[0] if isinstance(examples[0], tuple) else (examples[0],)
    look(model, *given, tokenizer=TOKENIZER)
    assert state(model) == before
    with pytest.raises(Enough):
        audit(model, examples[:2], tokenizer=TOKENIZER, settings=QUICK, on_progress=stop)
    assert state(model) == before


@pytest.mark.parametrize(
    ("family", "how"), [("bert", "eager"), ("bert", "sdpa"), ("bert", "regard"), ("gpt2", "eager"), ("bart", "sdpa")]
)
def test_audit_look_and_atlas_restore_a_transformers_model(family: str, how: str) -> None:
    model = half_trained(made(family, how))
    own, examples = tokenizer(pair=family != "gpt2"), THEIRS[family]
    before = state(model)
    assert how in before["attention"]
    pair = family == "bart"
    texts: list[Any] = [(SHORT, SHORT)] * 20 if pair else [SHORT] * 20
    borrowers: dict[str, Callable[[], object]] = {
        "audit": lambda: audit(model, examples, tokenizer=own, settings=QUICK),
        "stopped audit": lambda: audit(model, examples, tokenizer=own, settings=QUICK, on_progress=stop),
        "failing audit": lambda: audit(model, ["word " * 2000], tokenizer=own, settings=QUICK),
        "look": lambda: look(model, *(examples[0] if pair else examples), tokenizer=own),
        "look gradient": lambda: look(model, *(examples[0] if pair else examples), tokenizer=own, gradient=True),
        "failing look": lambda: look(model, "cat", tokenizer=own, places="nowhere"),
        "atlas": lambda: atlas(model, texts, tokenizer=own),
        "stopped atlas": lambda: atlas(model, texts, tokenizer=own, on_progress=stop),
    }
    for name, borrow in borrowers.items():
        wrong = name.startswith(("stopped", "failing"))
        with pytest.raises((Enough, RegardError)) if wrong else nullcontext():
            borrow()
        assert state(model) == before, name


def test_audit_is_the_same_in_training_mode_and_with_any_implementation() -> None:
    """It runs in eval() and through "regard", however the model came."""
    own = tokenizer()
    told = [
        audit(model, ["the cat sleeps", "a dog ."], tokenizer=own, settings=QUICK).to_dict()
        for model in (made("bert", "regard").eval(), made("bert", "eager").train(), made("bert", "sdpa").train())
    ]
    assert told[0] == told[1] == told[2]


def test_sub_configs_keep_their_own_implementations() -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.BertConfig(vocab_size=20, **small), transformers.BertConfig(vocab_size=20, **small)
    )
    model = transformers.EncoderDecoderModel(config)
    model.set_attn_implementation({"": "sdpa", "encoder": "eager", "decoder": "sdpa"})
    before = state(model)
    assert len(set(before["attention"])) == 2
    with suppress(Enough), borrow_model(model, through_regard=True, evaluate=True):
        assert model.config._attn_implementation == "regard" and not model.training
        raise Enough
    assert state(model) == before


def test_changes_to_a_borrowed_model_are_undone() -> None:
    model = half_trained(bert().model)
    before = state(model)
    with borrow_model(model):
        model.eval().requires_grad_(True)
        torch.rand(3)
    assert state(model) == before
    with suppress(Enough), borrow_model(model, evaluate=True):
        assert not any(module.training for module in model.modules())
        raise Enough
    assert state(model) == before


def test_looking_in_training_mode_leaves_the_rng_state() -> None:
    model = transformers.BertForMaskedLM(transformers.BertConfig(**{"vocab_size": 50, **SMALL})).train()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    look(model, "the cat sleeps", tokenizer=tokenizer())
    assert torch.equal(torch.rand(4), expected)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def hooked(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@torch.no_grad()
def test_capture_installs_nothing_on_a_model_that_reports_by_itself() -> None:
    given = tokenizer()("the cat sleeps", return_tensors="pt")
    maps = {}
    for how, expected in (("regard", False), ("sdpa", True)):
        model = made("bert", how)
        with capture(model) as heard:
            assert bool(hooked(model)) == expected
            with capture(model) as again:
                model(**given)
        assert hooked(model) == 0
        assert heard.places == again.places and all(len(heard.calls(place)) == 1 for place in heard)
        maps[how] = [heard[place].weights for place in heard]
    for one, other in zip(maps["regard"], maps["sdpa"], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    ours = bert().model
    with capture(ours):
        assert hooked(ours) == 0


@torch.no_grad()
def test_a_module_of_torchs_own_in_a_model_that_reports_is_still_captured() -> None:
    model = made("bert", "regard")
    model.add_module("more", nn.MultiheadAttention(32, 4, batch_first=True))
    given = tokenizer()("the cat sleeps", return_tensors="pt")
    with capture(model) as heard:
        states = model.bert(**given).last_hidden_state
        model.more(states, states, states)
    assert "more" in heard.places and len(heard.places) == 3


@pytest.mark.parametrize("how", ["regard", "sdpa"])
def test_intervening_leaves_no_trace(how: str) -> None:
    model = half_trained(made("bert", how))
    given = tokenizer()("the cat sleeps", return_tensors="pt")
    before = state(model)
    with torch.random.fork_rng(), intervene(model, "*.self", weights="uniform"):
        model(**given)
    assert state(model) == before
    with torch.random.fork_rng(), suppress(Enough), intervene(model, "*.self", weights="uniform"):
        model(**given)
        raise Enough
    assert state(model) == before


def test_an_adapter_alone_changes_nothing() -> None:
    model = half_trained(made("gpt2", "eager"))
    before = state(model)
    assert adapter(model, tokenizer(pair=False)).decision == "next word"
    assert state(model) == before
