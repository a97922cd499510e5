"""Tokenizers of Hugging Face folders: fast and slow ones, none, damaged ones, those that do not fit a model of ours."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import regard
from hub.folders import TEXT, WORDS, random_model, save_folder, save_tokenizer
from regard.adapters import adapter
from regard.adapters.hub_tokenizer import plain_piece
from regard.errors import CheckpointError, CheckpointWarning, SettingError
from regard.hub import transformers_version
from regard.page.view import look

transformers = pytest.importorskip("transformers")

GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
BERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
CANINE = {**BERT, "num_hidden_layers": 1, "local_transformer_stride": 8, "max_position_embeddings": 64}


def save_framed(folder: Path, single: str, pair: str, names: list[str] | None = None) -> None:
    """A tokenizer that writes texts in these ways."""
    engine = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(token, WORDS.index(token)) for token in ("[CLS]", "[SEP]")]
    engine.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "cls", "sep", "mask", "unk")}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, **roles, model_input_names=names or ["input_ids"]
    ).save_pretrained(folder)


def test_special_tokens_are_those_of_the_folder(tmp_path: Path) -> None:
    """A language model whose tokenizer begins every text, as Llama's does: ours would read it without."""
    random_model("GPT2LMHeadModel", **GPT2).save_pretrained(tmp_path)
    save_framed(tmp_path, "[CLS] $A", "[CLS] $A $B")
    record = look(tmp_path, TEXT).record
    assert record.axes[0].tokens == ("[CLS]", "the", "cat", "sleeps", ".")
    model: Any = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(torch.tensor([[1, 6, 7, 9, 11]]), output_attentions=True)
    for place, expected in zip(record.places, output.attentions, strict=True):
        torch.testing.assert_close(place.tile(2), expected[0, 2], rtol=0.0, atol=1e-3)
    shares = [share for _, share in record.facts["next"]]
    assert shares == pytest.approx(output.logits[0, -1].softmax(-1).topk(len(shares)).values.tolist(), abs=1e-4)
    with pytest.raises(SettingError, match=r"adds other special tokens than regard's GPT reads\. Pass the folder"):
        look(regard.load(tmp_path), TEXT)


def test_segments_that_a_tokenizer_does_not_give(tmp_path: Path) -> None:
    """transformers' model then takes both texts as the first segment, and ours would not."""
    random_model("BertForMaskedLM", **BERT).save_pretrained(tmp_path)
    save_framed(tmp_path, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    with pytest.raises(SettingError, match=r"joins two texts in a way of its own"):
        look(regard.load(tmp_path), "the cat", "a dog")


@pytest.mark.parametrize("installed", [True, False])
def test_pairs_that_are_joined_in_another_way(installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RoBERTa's are: two separators between the texts."""
    random_model("BertForMaskedLM", **BERT).save_pretrained(tmp_path)
    save_framed(tmp_path, "[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]")
    joined = look(tmp_path, "the cat", "a dog").record.axes[0].tokens
    assert joined == ("[CLS]", "the", "cat", "[SEP]", "[SEP]", "a", "dog", "[SEP]")
    model = regard.load(tmp_path)
    if not installed:
        monkeypatch.setattr(transformers_version, "installed_version", lambda: None)
    assert look(model, "the cat").record.axes[0].tokens == ("[CLS]", "the", "cat", "[SEP]")
    with pytest.raises(SettingError, match=r"joins two texts in a way of its own\. Pass the folder"):
        look(model, "the cat", "a dog")


def test_a_model_of_ours_reads_what_its_tokenizer_writes(tmp_path: Path) -> None:
    random_model("BertForMaskedLM", **BERT).save_pretrained(tmp_path)
    save_framed(tmp_path, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids"])
    ours, theirs = (look(one, "the [MASK]", "a dog").record for one in (regard.load(tmp_path), tmp_path))
    assert ours.axes[0].tokens == theirs.axes[0].tokens and ours.axes[0].segments == theirs.axes[0].segments
    for place, other in zip(ours.places, theirs.places, strict=True):
        torch.testing.assert_close(place.tile(1), other.tile(1), rtol=0.0, atol=1e-3)
    assert [one[0] for one in ours.steps[0].candidates] == [one[0] for one in theirs.steps[0].candidates]


def test_a_slow_tokenizer_of_bytes_has_no_vocabulary(tmp_path: Path) -> None:
    settings = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0}
    random_model("T5ForConditionalGeneration", **settings, vocab_size=384).save_pretrained(tmp_path)
    tokenizer = transformers.ByT5Tokenizer()
    assert not tokenizer.is_fast
    tokenizer.save_pretrained(tmp_path)
    record = look(tmp_path, "a cat", "b").record
    assert record.axes[0].tokens == ("a", " ", "c", "a", "t", "</s>") and record.axes[0].spans[-1] == (-1, -1)
    assert record.axes[2].tokens == ("b", "</s>")


def test_sentencepiece_signs_are_spaces() -> None:
    assert [plain_piece(one) for one in ("▁cat", "s", "▁", "</s>")] == ["cat", "s", "▁", "</s>"]


def test_a_token_without_an_embedding_is_named_if_the_text_has_it(tmp_path: Path) -> None:
    save_folder(tmp_path, "GPT2LMHeadModel", **GPT2)
    save_tokenizer(tmp_path, [*WORDS, *(f"new{number}" for number in range(20))])
    assert len(look(tmp_path, TEXT).record.places) == 2
    with pytest.raises(SettingError, match=r"no embedding of the token 'new10' of this text: its id is 83, .* 80 rows"):
        look(tmp_path, "the new10")
    with pytest.raises(SettingError, match=r"has tokens that the model lacks"):
        look(regard.load(tmp_path), TEXT)


def test_an_output_that_the_tokenizer_has_no_word_for(tmp_path: Path) -> None:
    """An embedding with room to spare: its last rows are numbers of no word."""
    model = random_model("GPT2LMHeadModel", **GPT2)
    with torch.no_grad():
        model.transformer.wte.weight[78] = 0.1 * model.transformer.wte.weight[:73].abs().amax(0)
        model.transformer.ln_f.bias.copy_(100 * model.transformer.wte.weight[78])
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert "[78]" in [word for word, _ in look(tmp_path, TEXT).record.facts["next"]]


@pytest.mark.parametrize("kind", ["BertTokenizer", "GPT2Tokenizer"])
def test_a_vocabulary_of_early_folders(kind: str, tmp_path: Path) -> None:
    """Without tokenizer.json, which transformers then makes of the other files."""
    if kind == "BertTokenizer":
        random_model("BertForMaskedLM", **BERT).save_pretrained(tmp_path)
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    else:
        random_model("GPT2LMHeadModel", **GPT2).save_pretrained(tmp_path)
        pieces = [*"thecatsGdo", "Ġ", "th", "the", "Ġc", "<|endoftext|>"]
        (tmp_path / "vocab.json").write_text(
            json.dumps({piece: number for number, piece in enumerate(dict.fromkeys(pieces))})
        )
        (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\nĠ c\n")
    tokens = look(tmp_path, "the cat").record.axes[0].tokens
    assert tokens == (("[CLS]", "the", "cat", "[SEP]") if kind == "BertTokenizer" else ("the", "c", "a", "t"))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    random_model("GPT2LMHeadModel", **GPT2).save_pretrained(tmp_path)
    with pytest.raises(SettingError, match=r"no tokenizer.*a folder with the files of one, such as tokenizer.json"):
        look(tmp_path, TEXT)
    about = {"tokenizer_class": "GPT2Tokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"tokenizer"):
        look(tmp_path, TEXT)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", "{", r"tokenizer\.json: The file is not valid JSON"),
        ("tokenizer.json", '{"model": {"type": "Gossip"}}', "Unknown tokenizer model 'Gossip'"),
        ("tokenizer_config.json", "[1]", "cannot load the tokenizer of this folder"),
    ],
)
def test_a_damaged_tokenizer_is_a_sentence(name: str, content: str, said: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **BERT, num_key_value_heads=2)
    (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=said):
        look(folder, TEXT)


@pytest.mark.parametrize("name", ["TokenizersBackend", "Nobody", "XLNetTokenizer"])
def test_a_class_that_splits_in_another_way_than_its_file(name: str, tmp_path: Path) -> None:
    """transformers 5.22 makes a tokenizer of Qwen 2 of any vocabulary in a folder of Qwen 2; 5.2 does not."""
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **BERT, num_key_value_heads=2)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    chosen = transformers.AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        record = look(folder, TEXT).record
    told = [str(one.message) for one in said if one.category is CheckpointWarning]
    assert len(told) == (chosen != [6, 7, 9, 11, 2])
    assert all("is that of tokenizer.json; transformers'" in one for one in told)
    assert record.axes[0].tokens == ("the", "cat", "sleeps", ".", "[END]")


def test_a_tokenizer_that_needs_another_package(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "XLMWithLMHeadModel", emb_dim=32, n_layers=1, n_heads=4)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMTokenizer"}')
    (folder / "vocab.json").write_text('{"the": 0, "<unk>": 1}')
    (folder / "merges.txt").write_text("t h 1\n")
    with pytest.raises(CheckpointError, match=r"cannot load the tokenizer of this folder \(ImportError.*sacremoses"):
        look(folder, TEXT)


def test_a_model_that_embeds_characters_by_hashes(tmp_path: Path) -> None:
    random_model("CanineForTokenClassification", **CANINE, vocab_size=1).save_pretrained(tmp_path)
    transformers.CanineTokenizer().save_pretrained(tmp_path)
    found = adapter(tmp_path)
    assert found.prepare("a cat").length == 7  # [CLS] and [SEP] too
