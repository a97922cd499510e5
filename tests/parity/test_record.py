"""transformers' models looked at: tokens and offsets from their tokenizers, weights as eager has them."""

from __future__ import annotations

import pytest
import torch

from parity.test_attention_interface import made
from regard import hub
from regard.adapters import adapter
from regard.errors import SettingError
from regard.inspection.record.collect import collect
from regard.page.view import look

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _enabled() -> None:
    hub.enable()


def tokenizer(pair: bool = True):
    """Words and letters, as a fast tokenizer of transformers, with [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sleep", "##s", "dog", "a", ".", "##ly"]
    engine = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if pair:
        template = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
        engine.post_processor = processors.TemplateProcessing(**template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names)


@pytest.mark.parametrize("how", ["regard", "sdpa", "eager"])
@torch.no_grad()
def test_an_encoder(how: str) -> None:
    model = made("bert", how)
    record = look(model, "the cat sleeps", "a [MASK] .", tokenizer=tokenizer()).record
    [side] = record.axes
    assert side.tokens == ("[CLS]", "the", "cat", "sleep", "s", "[SEP]", "a", "[MASK]", ".", "[SEP]")
    assert side.words == (-1, 0, 1, 2, 2, -1, 3, 4, 5, -1)
    assert side.segments == (0,) * 6 + (1,) * 4
    given = tokenizer()("the cat sleeps", "a [MASK] .", return_tensors="pt")
    maps = made("bert", "eager")(**given, output_attentions=True).attentions
    for place, expected in zip(record.places, maps, strict=True):
        for head in range(4):
            torch.testing.assert_close(place.tile(head), expected[0, head], atol=1e-3, rtol=0)
        assert place.value_norms is not None
    assert [step.at for step in record.steps] == [7]
    assert model.config._attn_implementation == how


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@torch.no_grad()
def test_a_decoder_goes_on(family: str) -> None:
    model = made(family, "regard")
    found = adapter(model, tokenizer(pair=False), max_new_tokens=3)
    record = collect(found, "the cat")
    assert found.kind == "continues" and len(record.axes[0]) == 5 and len(record.steps) == 3
    assert all(place.value_norms is not None and place.value_norms.shape == (4, 5) for place in record.places)
    other = collect(found, "the cat", prefix=[9])
    assert other.steps[0].token == 9 and len(other.steps) == 3


@pytest.mark.parametrize("family", ["bart", "marian", "t5"])
@torch.no_grad()
def test_both(family: str) -> None:
    model = made(family, "regard")
    model.generation_config.eos_token_id = 3
    found = adapter(model, tokenizer())
    record = collect(found, "the cat sleeps", "a dog .")
    assert found.kind == "translates" and [len(side) for side in record.axes] == [6, 5, 5]
    assert sorted({(place.queries, place.keys) for place in record.places}) == [(0, 0), (1, 1), (2, 0)]
    assert len(record.places) == 6 and len(record.steps) == 5
    written = collect(found, "the cat sleeps")
    assert written.steps and len(written.axes[1]) == len(written.axes[2])


@torch.no_grad()
def test_a_picture_goes_in_as_tensors() -> None:
    record = look(made("vit", "regard"), {"pixel_values": torch.randn(1, 3, 16, 16)}).record
    assert record.axes[0].tokens[:3] == ("[CLS]", "patch 0,0", "patch 0,1") and len(record.axes[0]) == 17


def test_a_model_without_tokenizer_says_so() -> None:
    with pytest.raises(SettingError, match=r"no tokenizer.*Pass tokenizer="):
        look(made("bert", "sdpa"), "the cat")


@torch.no_grad()
def test_an_architecture_without_counterpart_is_loaded_and_heard(tmp_path) -> None:
    import regard

    made("t5", "eager").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    model = regard.load(tmp_path)
    assert type(model).__name__ == "T5ForConditionalGeneration"
    assert len(look(model, "the cat", "a dog").record.places) == 6


@pytest.mark.parametrize("how", ["regard", "sdpa", "eager"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_gradients_come_with_every_way_of_attending(family: str, how: str) -> None:
    texts = {"bert": ("the [MASK] sleeps",), "gpt2": ("the cat",), "t5": ("the cat", "a dog")}[family]
    model = made(family, how)
    record = look(model, *texts, tokenizer=tokenizer(pair=family != "gpt2"), gradient=True).record
    assert all(place.stored_gradients is not None for place in record.places)
    assert any(place.gradient(0).abs().max() > 1e-6 for place in record.places)
    assert model.config._attn_implementation == how
