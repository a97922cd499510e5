"""Encoder-decoders of transformers looked into: what their decoders are given, and what their attention is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hub.folders import TEXT, edit_config, save_folder
from regard.adapters import adapter
from regard.errors import SettingError
from regard.hub import load_own
from regard.inspection.record.record import Record
from regard.page.view import look

transformers = pytest.importorskip("transformers")

BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48} | {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 32,
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", {**BART, **IDS, "decoder_start_token_id": 2}),
    "marian": ("MarianMTModel", {**BART, **IDS, "decoder_start_token_id": 0}),
    "mbart": ("MBartForConditionalGeneration", {**BART, **IDS}),
    "pegasus": ("PegasusForConditionalGeneration", {**BART, **IDS, "decoder_start_token_id": 0}),
    "t5": ("T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0}),
    "nllb-moe": (
        "NllbMoeForConditionalGeneration",
        {**BART, **IDS, "decoder_start_token_id": 2, "num_experts": 2, "encoder_sparse_step": 2}
        | {"decoder_sparse_step": 2, "router_dtype": "float32"},
    ),
}
TARGET = "a dog sees the cat"


def made(folder: Path, case: str, **more: Any) -> tuple[Path, str]:
    """The folder of a case, and the class of its model."""
    if case == "marian" and transformers.__version__.startswith("5.2."):
        pytest.skip("AutoTokenizer of transformers 5.2 opens no folder of Marian without SentencePiece")
    kind, settings = CASES[case]
    return save_folder(folder, kind, **settings, **more), kind


def cross_places(record: Record) -> list[Any]:
    return [place for place in record.places if place.kind == "cross"]


@pytest.mark.parametrize("case", CASES)
def test_a_given_text_is_read_as_in_training(case: str, tmp_path: Path) -> None:
    """The probabilities are those behind the loss, so the inputs of the decoder are those of training."""
    folder, kind = made(tmp_path, case)
    record = look(folder, TEXT, TARGET).record
    source, begun, given = record.axes
    assert source.tokens == ("the", "cat", "sleeps", ".", "[END]")
    assert given.tokens == ("a", "dog", "sees", "the", "cat", "[END]") and begun.tokens[1:] == given.tokens[:-1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()
    ids, labels = (tokenizer(text, return_tensors="pt")["input_ids"] for text in (TEXT, TARGET))
    with torch.no_grad():
        output = model(input_ids=ids, labels=labels, output_attentions=True)
        logs = output.logits[0].log_softmax(-1).gather(1, labels[0, :, None]).squeeze(1)
    torch.testing.assert_close(torch.tensor([step.log_prob for step in record.steps]), logs, rtol=0.0, atol=1e-4)
    places = cross_places(record)
    assert [(place.T, place.S) for place in places] == [(6, 5)] * len(output.cross_attentions)
    for place, expected in zip(places, output.cross_attentions, strict=True):
        torch.testing.assert_close(place.tile(0), expected[0, 0], rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_what_it_generates_is_what_the_model_generates(case: str, tmp_path: Path) -> None:
    folder, kind = made(tmp_path, case)
    if case == "mbart":  # whose decoder begins with a language, which is said when it generates
        edit_generation(edit_config(folder, bos_token_id=None), bos_token_id=None)
        with pytest.raises(SettingError, match=r"which token the decoder begins with\. Set decoder_start_token_id"):
            look(folder, TEXT)
        edit_generation(folder, decoder_start_token_id=7)
    if case == "bart":
        edit_generation(folder, forced_bos_token_id=1)
    view = look(folder, TEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    expected = model.generate(ids, max_new_tokens=20, num_beams=1, do_sample=False)[0].tolist()
    assert [step.token for step in view.record.steps] == expected[1:]
    assert view.record.axes[1].tokens[0] == tokenizer.decode([expected[0]])
    if case == "bart":
        assert expected[:2] == [2, 1]  # the forced beginning
    again = look(folder, TEXT, measures=["gradients"]).record  # which runs the model again, on the same tokens
    assert {one.values.shape for one in again.measures} >= {(len(expected) - 1, 5)}


def edit_generation(folder: Path, **settings: object) -> None:
    found = transformers.GenerationConfig.from_pretrained(folder)
    for name, value in settings.items():
        setattr(found, name, value)
    found.save_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("BartForSequenceClassification", {**BART, **IDS, "decoder_start_token_id": 2, "num_labels": 3}),
        ("T5ForSequenceClassification", {**T5, "decoder_start_token_id": 0, "num_labels": 3}),
        ("BartForQuestionAnswering", {**BART, **IDS, "decoder_start_token_id": 2}),
        ("BartModel", {**BART, **IDS, "decoder_start_token_id": 2}),
    ],
)
def test_the_decoder_of_a_model_that_writes_nothing_reads_the_text(kind: str, settings: Any, tmp_path: Path) -> None:
    folder = save_folder(tmp_path, kind, **settings)
    record = look(folder, TEXT).record
    source, begun = record.axes
    first = "[END]" if kind.startswith("Bart") else "[PAD]"
    assert begun.tokens == (first, *source.tokens[:-1])  # shifted by one
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        output = model(ids, output_attentions=True)
    for place, expected in zip(cross_places(record), output.cross_attentions, strict=True):
        torch.testing.assert_close(place.tile(1), expected[0, 1], rtol=0.0, atol=1e-3)
    if "Classification" in kind:
        shares = torch.tensor([share for _, share in record.facts["classes"]])
        torch.testing.assert_close(shares, output.logits[0].softmax(-1), rtol=0.0, atol=1e-4)


def test_a_bare_t5_needs_the_text_of_its_decoder(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "T5Model", **T5, decoder_start_token_id=0)
    with pytest.raises(SettingError, match=r"T5Model cannot run on this text \(ValueError: You (must|have to) specify"):
        look(folder, TEXT)
    record = look(folder, TEXT, TARGET).record
    assert record.axes[1].tokens == ("[PAD]", "a", "dog", "sees", "the", "cat")
    assert {place.kind for place in record.places} == {"self", "cross"}


def test_an_encoder_of_a_t5_has_one_axis(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "T5EncoderModel", **T5)
    [axis] = look(folder, TEXT).record.axes
    assert axis.tokens == ("the", "cat", "sleeps", ".", "[END]")


def test_tokens_without_an_embedding_in_the_decoder(tmp_path: Path) -> None:
    folder, _ = made(tmp_path, "marian", decoder_vocab_size=60, share_encoder_decoder_embeddings=False)
    found = adapter(load_own(folder))
    with pytest.raises(SettingError, match=r"no embedding of the token 'w57' of this text: its id is 70, .* 60 rows"):
        found.prepare(TEXT, "w57 cat")
