"""Folders of every text architecture of transformers: each loads equal to eager attention, and can be looked into.

A sample in every run; all causal, masked and sequence-to-sequence language models and sequence classifiers that
transformers registers in `make test-long`. benchmarks/zoo_models.py makes their configurations small.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from hub.folders import IDS, TEXT, save_tokenizer
from parity.benchmark_modules import zoo_module
from regard import hub
from regard.errors import CheckpointWarning, RegardError
from regard.inspection.record.record import Record
from regard.models import GPT, MaskedLM, Transformer
from regard.page.view import look

transformers = pytest.importorskip("transformers")

HEADS = ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM")
SAMPLE = {  # classes, by what is peculiar to their folders
    "converted": "GPT2LMHeadModel BertForMaskedLM",
    "of a family of ours, with another head": "BertForSequenceClassification BartForSequenceClassification",
    "one layer called many times": "AlbertForMaskedLM",
    "two streams, segments, no limit of length": "XLNetLMHeadModel",
    "decoders with starts of their own": "T5ForConditionalGeneration MBartForConditionalGeneration",
    "experts": "NllbMoeForConditionalGeneration MixtralForCausalLM",
    "scores of several terms": "DebertaV2ForSequenceClassification",
    "windows, soft caps": "Gemma2ForCausalLM",
    "states without attention": "MambaForCausalLM",
}
NOT_BUILT = {
    "Gemma3nForConditionalGeneration": "needs timm",
    "LayoutLMv2ForSequenceClassification": "needs detectron2",
    "Gemma4AssistantForCausalLM": "its small configuration is refused",
    "ReformerModelWithLMHead": "its small configuration is no decoder",
}
TARGET = torch.tensor([[2, 6, 8, 9]])
# what look says of a folder that it makes no record of
REFUSALS = (
    "No attention was captured",
    "could be heard",
    "cannot run on this text",  # of a model that needs more than a text
    "which token the decoder begins with",
)


@pytest.fixture(scope="module")
def zoo() -> ModuleType:
    return zoo_module("zoo_models")


def registered() -> dict[str, str]:
    """The model type of each class with a head for text."""
    from transformers.models.auto import modeling_auto

    found: dict[str, str] = {}
    for head in HEADS:
        for kind, names in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").items():
            found |= {name: kind for name in ([names] if isinstance(names, str) else names) if name not in found}
    return found


def build(zoo: ModuleType, name: str, kind: str) -> Any:
    """A small random model of a class."""
    made = getattr(transformers, name)
    torch.manual_seed(0)
    config = zoo.config_of(kind, made)
    if kind in ("t5", "longt5", "switch_transformers"):  # whose default does not say it
        config.decoder_start_token_id = 0
    model = made(config).eval()
    zoo.made_lively(model)
    return model


@torch.no_grad()
def logits_of(model: Any) -> Tensor:
    lengths, places = torch.tensor([IDS.size(1)]), torch.arange(IDS.size(1))
    if isinstance(model, GPT):
        return model(IDS)
    if isinstance(model, MaskedLM):
        return model(IDS, lengths, None, places).logits.unsqueeze(0)
    if isinstance(model, Transformer):
        return model(IDS, lengths, TARGET)[0].logits
    given = {"input_ids": IDS}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters and "ForSequence" not in type(model).__name__:
        given["decoder_input_ids"] = TARGET
    found: Tensor = model(**given).logits
    return found


def succeeds(call: Callable[[], Any]) -> Any:
    """What a call of transformers gives; None where transformers itself cannot do it."""
    try:
        return call()
    except Exception:  # noqa: BLE001  (of any kind: what transformers cannot do, regard need not)
        return None


def expect_folder(zoo: ModuleType, name: str, kind: str, folder: Path) -> None:
    if name in NOT_BUILT:
        pytest.skip(f"{name}: {NOT_BUILT[name]}")
    model = build(zoo, name, kind)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    made = getattr(transformers, name)
    eager = succeeds(lambda: made.from_pretrained(folder, attn_implementation="eager").eval())
    expected = None if eager is None else succeeds(lambda: logits_of(eager))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        if eager is None:
            with pytest.raises(RegardError):
                hub.load(folder)
            return
        ours = hub.load(folder)
        if expected is not None:
            torch.testing.assert_close(logits_of(ours), expected, rtol=0.0, atol=1e-4, equal_nan=True)
        record, refusal = look_at(folder)
    if record is None:
        assert any(reason in refusal for reason in REFUSALS), refusal
    else:
        assert record.axes[0].tokens == (*TEXT.split(), "[END]") and record.places


def look_at(folder: Path) -> tuple[Record | None, str]:
    """The record of a text; or None, and what was said instead."""
    try:
        return look(folder, TEXT).record, ""
    except RegardError as error:
        return None, str(error)


@pytest.mark.parametrize("name", " ".join(SAMPLE.values()).split())
def test_a_folder_loads_and_can_be_looked_into(zoo: ModuleType, name: str, tmp_path: Path) -> None:
    expect_folder(zoo, name, registered()[name], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(registered()) - set(" ".join(SAMPLE.values()).split())))
def test_every_other_folder_loads_and_can_be_looked_into(zoo: ModuleType, name: str, tmp_path: Path) -> None:
    expect_folder(zoo, name, registered()[name], tmp_path)
