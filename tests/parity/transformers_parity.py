"""Tiny models of transformers with weights that tell something, and how they are compared with ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.attention import capture

transformers = pytest.importorskip("transformers", reason="parity needs transformers")
transformers.logging.set_verbosity_error()

TOLERANCE = {"rtol": 0.0, "atol": 1e-4}
VOCABULARY = 37


def tiny(kind: str, seed: int = 0, **settings: object) -> nn.Module:
    """A model of this class, whose weights are all different and not small."""
    torch.manual_seed(seed)
    made = getattr(transformers, kind)
    config = made.config_class(**{"vocab_size": VOCABULARY, "attn_implementation": "eager", **settings})
    model = made(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 0.3 if weight.dim() > 1 else 0.1
            weight.normal_(std=scale)
            if "norm" in name.lower() or ".ln_" in name:
                weight.add_(float(name.endswith("weight")))
    return model


def saved(model: nn.Module, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def opened(kind: str, folder: Path) -> nn.Module:
    model, told = getattr(transformers, kind).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
    return model.eval()


def tokens(*shape: int, most: int = VOCABULARY) -> Tensor:
    return torch.randint(3, most, shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def same_decoder(theirs: nn.Module, ours: nn.Module, ids: Tensor) -> None:
    """Logits, every hidden state and every weight of attention."""
    expected = theirs(ids, output_attentions=True, output_hidden_states=True)
    with capture(ours, "*.self") as heard:
        logits = ours(ids)
    torch.testing.assert_close(logits, expected.logits, **TOLERANCE)
    for got, wanted in zip(ours.layers(ids), expected.hidden_states, strict=True):
        torch.testing.assert_close(got, wanted, **TOLERANCE)
    for place, wanted in zip(heard.places, expected.attentions, strict=True):
        torch.testing.assert_close(heard[place].weights, wanted, **TOLERANCE)


@torch.no_grad()
def same_encoder(theirs: nn.Module, ours: nn.Module, ids: Tensor, lengths: Tensor, segments: Tensor | None) -> None:
    """Every hidden state and weight of attention of the real tokens; where there are heads, what they say of them."""
    real = torch.arange(ids.size(1)) < lengths[:, None]
    more = {} if segments is None else {"token_type_ids": segments}
    expected = theirs(ids, attention_mask=real.long(), output_attentions=True, output_hidden_states=True, **more)
    bert = getattr(ours, "bert", ours)
    with capture(bert, "*.self") as heard:
        states = bert.states(ids, lengths, segments)
    for got, wanted in zip(states.unbind(1), expected.hidden_states, strict=True):
        torch.testing.assert_close(got[real], wanted[real], **TOLERANCE)
    for place, wanted in zip(heard.places, expected.attentions, strict=True):
        asking = real[:, None, :, None].expand_as(wanted)
        torch.testing.assert_close(heard[place].weights[asking], wanted[asking], **TOLERANCE)
    logits = expected.get("prediction_logits", expected.get("logits"))
    if logits is not None:
        places = real.flatten().nonzero().squeeze(1)
        guesses = ours(ids, lengths, segments, places)
        torch.testing.assert_close(guesses.logits, logits[real], **TOLERANCE)
        if "seq_relationship_logits" in expected:
            torch.testing.assert_close(guesses.next_sentence.flip(1), expected.seq_relationship_logits, **TOLERANCE)
    if expected.get("pooler_output") is not None:
        torch.testing.assert_close(ours.pooled(states[:, -1]), expected.pooler_output, **TOLERANCE)
