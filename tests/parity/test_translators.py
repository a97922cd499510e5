"""BART and Marian of transformers, brought here and carried back: logits, states and all three attentions are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from parity.transformers_parity import TOLERANCE, VOCABULARY, opened, saved, tiny, tokens
from regard import hub
from regard.attention import capture
from regard.decoding import Greedy, Rules

SIZES = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 36,
    "max_position_embeddings": 30,
}
START = VOCABULARY - 1
CASES = {
    "bart": ("BartForConditionalGeneration", SIZES),
    "bart-scaled": ("BartForConditionalGeneration", {**SIZES, "scale_embedding": True, "activation_function": "relu"}),
    "marian": ("MarianMTModel", {**SIZES, "pad_token_id": START, "decoder_start_token_id": START, "eos_token_id": 0}),
    "marian-swish": (
        "MarianMTModel",
        {**SIZES, "pad_token_id": START, "decoder_start_token_id": START, "eos_token_id": 0, "scale_embedding": True}
        | {"activation_function": "swish"},
    ),
}


def made(kind: str, settings: dict) -> nn.Module:
    theirs = tiny(kind, **settings)
    for half in (theirs.model.encoder, theirs.model.decoder):  # the sines of Marian are weights that never change
        if hasattr(half.embed_positions, "create_weight"):
            half.embed_positions.weight.data = half.embed_positions.create_weight()
    theirs.final_logits_bias.normal_()
    return theirs


@torch.no_grad()
def same(theirs: nn.Module, ours: nn.Module) -> None:
    source, lengths, target = tokens(3, 9, most=START), torch.tensor([9, 4, 6]), tokens(3, 7, most=START)
    real = torch.arange(9) < lengths[:, None]
    expected = theirs(
        source,
        attention_mask=real.long(),
        decoder_input_ids=target,
        output_attentions=True,
        output_hidden_states=True,
    )
    with capture(ours) as heard:
        said, _ = ours(source, lengths, target)
    torch.testing.assert_close(said.logits, expected.logits, **TOLERANCE)
    for got, wanted in zip(ours.encoder.layers(source, lengths), expected.encoder_hidden_states, strict=True):
        torch.testing.assert_close(got[real], wanted[real], **TOLERANCE)
    asking = real[:, None, :, None]
    for layer, wanted in enumerate(expected.encoder_attentions):
        got = heard[f"encoder.blocks.{layer}.self"].weights
        torch.testing.assert_close(got * asking, wanted * asking, **TOLERANCE)
    for place, all_wanted in (("self", expected.decoder_attentions), ("cross", expected.cross_attentions)):
        for layer, wanted in enumerate(all_wanted):
            torch.testing.assert_close(heard[f"decoder.{layer}.{place}"].weights, wanted, **TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_both_ways(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    theirs = made(kind, settings)
    ours = hub.load(saved(theirs, tmp_path / "theirs"))
    same(theirs, ours)
    more = {name: settings[name] for name in settings if name.endswith("_id")}
    hub.save(ours, tmp_path / "back", more=more)
    same(opened(kind, tmp_path / "back"), ours)


@pytest.mark.parametrize("case", ["bart", "marian"])
def test_it_writes_the_same(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    theirs = made(kind, settings)
    ours, source, lengths = hub.load(saved(theirs, tmp_path)), tokens(2, 9, most=START), torch.tensor([9, 5])
    first = torch.full((2,), theirs.config.decoder_start_token_id)
    mask = (torch.arange(9) < lengths[:, None]).long()
    still = {"eos_token_id": None, "forced_eos_token_id": None, "forced_bos_token_id": None, "bad_words_ids": None}
    expected = theirs.generate(source, attention_mask=mask, max_new_tokens=8, do_sample=False, num_beams=1, **still)
    written = Greedy()(ours, ours.start(source, lengths), first, Rules(None, 8))
    assert [text.tokens for (text,) in written] == expected[:, 1:9].tolist()
