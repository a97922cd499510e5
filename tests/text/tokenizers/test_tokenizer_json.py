"""Hostile tokenizer.json files are refused in words before the library loads them; its panics become errors."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from regard.errors import SettingError, is_rust_panic
from regard.text import BPE, ByteBPE, CharacterLevel, Tokenizer, Unigram, WordLevel, WordPiece
from regard.text.tokenizers.tokenizer_json import MAX_COMPONENTS, MAX_NESTING, check_description, rust_errors

TEXTS = ["the cat sleeps .", "a dog sees the cat ."] * 5


def saved(folder: Path, **changes: Any) -> Path:
    """A small tokenizer with some parts of its file replaced."""
    path = folder / "tokenizer.json"
    Tokenizer.train(WordLevel(50), TEXTS).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "NFC"}
    for _ in range(depth):
        found = {"type": "Sequence", "normalizers": [found]}
    return found


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def chain(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


@pytest.mark.parametrize(
    "kind", [BPE(60), ByteBPE(300), WordPiece(60), Unigram(40), WordLevel(50), CharacterLevel()], ids=repr
)
def test_every_tokenizer_of_ours_passes(kind: Any, tmp_path: Path) -> None:
    Tokenizer.train(kind, TEXTS).save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode("the cat .").ids


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"normalizer": nested(MAX_NESTING + 1)}, "8 sequences inside each other"),
        ({"normalizer": nested(30)}, "more than 24 lists and objects inside each other"),
        ({"normalizer": nested(120)}, "lists and objects inside each other"),
        ({"normalizer": chain(*[{"type": "NFC"}] * MAX_COMPONENTS)}, "more than 256 components"),
        ({"normalizer": chain(*[replace({"String": "a"}, "aa")] * 40)}, "replacements make up to"),
        ({"normalizer": chain(*[replace({"Regex": "."}, "aa")] * 40)}, "replacements make up to"),
        ({"normalizer": {"type": "Exec"}}, "Unknown normalizer 'Exec'"),
        ({"decoder": {"type": ["Fuse"]}}, "Unknown decoder"),
        ({"pre_tokenizer": split("(")}, "invalid regular expression"),
        ({"pre_tokenizer": split("a" * 10_001)}, "at most 10,000 characters"),
        ({"pre_tokenizer": [1]}, "expected an object"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 4_000_000_000}, "unk_token": "a"}}, "id 4,000,000,000"),
        ({"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}, "the id -1"),
        ({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "a"}, "added_tokens": []}, "vocab has no token"),
        ({"model": None}, "no model"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[[["a"]]]]}}, "merges with an entry that is no pair"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0], [["a"], 0.0]]}}, "an entry that is no piece"),
        ({"normalizer": {"type": "Prepend", "prepend": ["a"] * 1_000_000}}, "a normalizer of 5,000,0.. characters"),
        ({"padding": {"strategy": {"Fixed": 10**12}}}, "padding or truncation to 1000000000000 tokens"),
        ({"truncation": {"stride": 10**12}}, "padding or truncation"),
        (
            {"post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"id": "x", "ids": [10**6]}}}},
            "the token id 1000000, expected one from 0",
        ),
        ({"post_processor": {"type": "BertProcessing", "sep": ["a", 99], "cls": ["b", 1]}}, "the token id 99"),
    ],
)
def test_a_hostile_file_is_refused_before_it_is_loaded(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=said):
        Tokenizer.load(saved(tmp_path, **changes))


def test_a_link_to_a_device_and_a_fifo_are_refused(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    for name in ("zero", "fifo"):
        with pytest.raises(SettingError, match="expected a regular file"):
            Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
@pytest.mark.parametrize("pattern", ["(a+)+$b", "(a|a)+$b", "(a*)*$b"])
def test_a_regex_that_backtracks_without_end_is_an_error_in_words(part: str, pattern: str, tmp_path: Path) -> None:
    change = split(pattern) if part == "pre_tokenizer" else replace({"Regex": pattern}, "x")
    tokenizer, began = Tokenizer.load(saved(tmp_path, **{part: change})), time.monotonic()
    text = "a" * 60 + " b!"
    for process in (lambda: tokenizer.encode(text), lambda: tokenizer.ids_batch([text] * 3)):
        with pytest.raises(SettingError, match=r"The tokenizer cannot process this text.*retry-limit"):
            process()
    if part == "normalizer":
        with pytest.raises(SettingError, match="cannot process this text"):
            tokenizer.normalize(text)
    assert time.monotonic() - began < 30
    assert tokenizer.encode("the").ids  # another text is read as ever


def test_only_panics_become_errors() -> None:
    class PanicException(BaseException):
        pass

    with pytest.raises(SettingError, match="stopped \\(deep inside\\)"), rust_errors("here"):
        raise PanicException("deep inside\nat line 7")
    assert not is_rust_panic(KeyboardInterrupt()) and not is_rust_panic(ValueError())
    for other in (KeyboardInterrupt, SystemExit, ValueError):
        with pytest.raises(other), rust_errors("here"):
            raise other


def test_tokenizers_of_well_known_models_pass() -> None:
    """The components that T5, GPT-2, Llama, BERT and CLIP tokenizers have."""
    gpt = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    vocabulary = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    check_description(
        {
            "normalizer": chain({"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(gpt), {"type": "ByteLevel"}]},
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            "post_processor": {"type": "RobertaProcessing", "sep": ["b", 1], "cls": ["a", 0]},
            "model": vocabulary,
            "added_tokens": [{"id": 2, "content": "<s>"}],
        },
        "here",
    )
    clip = chain({"type": "NFC"}, replace({"Regex": r"\s+"}, " "), {"type": "Lowercase"})
    quotes = chain(replace({"String": "``"}, '"'), replace({"String": "''"}, '"'), {"type": "Precompiled"})
    for normalizer in (clip, quotes):
        check_description({"normalizer": normalizer, "model": vocabulary}, "here")
