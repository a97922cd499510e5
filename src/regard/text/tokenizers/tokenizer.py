"""The tokenizer: text to token ids and back, in one `tokenizer.json` that Hugging Face reads too.

tokenizer = Tokenizer.train(BPE(8000), texts)
tokenizer.decode(tokenizer.encode(text).ids) == tokenizer.normalize(text)      # where nothing is unknown
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding as RawEncoding, Tokenizer as Engine

from regard.errors import DtypeError, SettingError, unknown
from regard.files import write_atomic
from regard.text.tokenizers.specials import SpecialIds, find_roles, special_ids
from regard.text.tokenizers.tokenizer_json import load_engine, parse_engine, rust_errors
from regard.text.tokenizers.trainers import Progress, TokenizerKind, train_engine
from regard.text.words import Span, Splitter, whitespace_words, word_indices


class Tokenizer:
    """Encodes text to token ids and decodes them. A literal "[MASK]" in the text never becomes the special token."""

    def __init__(self, description: str, special: SpecialIds) -> None:
        """`description` is the text of a tokenizer.json; use `train` or `load`."""
        self._description = description
        self.special = special

    @classmethod
    def train(cls, kind: TokenizerKind, texts: Iterable[str], progress: Progress | None = None) -> Tokenizer:
        """Train a tokenizer of this kind on a stream of texts; the same texts give the same tokenizer."""
        return cls._of(train_engine(kind, texts, progress), {})

    @classmethod
    def load(cls, path: str | os.PathLike[str], roles: Mapping[str, str] | None = None) -> Tokenizer:
        """Read any tokenizer.json; `roles` names special tokens with unusual spellings ({"end": "<eot>"})."""
        try:
            engine = load_engine(Path(path))
        except OSError as error:
            raise SettingError(f"Could not read {path}: {error.strerror}", where="Tokenizer.load") from error
        engine.no_padding()
        engine.no_truncation()
        return cls._of(engine, roles or {})

    @classmethod
    def _of(cls, engine: Engine, roles: Mapping[str, str]) -> Tokenizer:
        description = json.loads(engine.to_str())
        vocabulary = engine.get_vocab(with_added_tokens=True)
        special = {token["content"]: token["id"] for token in description["added_tokens"] if token["special"]}
        found = find_roles(description, vocabulary) | dict(roles)
        return cls(_canonical(description), special_ids(found, vocabulary, special))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a tokenizer.json. It does not contain the `roles` given to `load`."""
        try:
            write_atomic(Path(path), self._description.encode())
        except OSError as error:
            raise SettingError(f"Could not write {path}: {error.strerror}", where="Tokenizer.save") from error

    def encode(self, text: str, *, specials: bool = False, words: Splitter = whitespace_words) -> Encoding:
        """Encode a text. `specials=True` reads "[MASK]" and the like in the text as special tokens.

        `words`: the word tokenization behind `Encoding.words`.
        """
        return self.encode_batch([text], specials=specials, words=words)[0]

    def encode_batch(
        self, texts: Sequence[str], *, specials: bool = False, words: Splitter = whitespace_words
    ) -> list[Encoding]:
        """Encode many texts, on all cores."""
        engine = self._engine if specials else self._literal_engine
        with _UnicodeCheck(texts), rust_errors("Tokenizer.encode_batch"):
            raw = engine.encode_batch(list(texts), add_special_tokens=False)
        return [Encoding(text, one, self.token, words) for text, one in zip(texts, raw, strict=True)]

    def ids_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts alone, faster than `encode_batch`."""
        with _UnicodeCheck(texts), rust_errors("Tokenizer.ids_batch"):
            return [one.ids for one in self._literal_engine.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """Decode ids to text, without special tokens unless `specials=True`."""
        return self.decode_batch([ids], specials=specials)[0]

    def decode_batch(self, sequences: Sequence[Sequence[int]], *, specials: bool = False) -> list[str]:
        """Decode each sequence of ids."""
        sequences = [list(map(int, ids)) for ids in sequences]
        for ids in sequences:
            if ids and not 0 <= min(ids) <= max(ids) < len(self):
                raise SettingError(f"ids from {min(ids)} to {max(ids)}", f"0 to {len(self) - 1}", where="decode")
        with rust_errors("Tokenizer.decode_batch"):
            return list(self._engine.decode_batch(sequences, skip_special_tokens=not specials))

    def normalize(self, text: str) -> str:
        """The text that encoding and decoding would return with an unlimited vocabulary."""
        with _UnicodeCheck([text]), rust_errors("Tokenizer.normalize"):
            normal = self._engine.normalizer.normalize_str(text) if self._engine.normalizer else text
            if self._engine.pre_tokenizer is None or self._engine.decoder is None:
                return str(normal)
            words = [word for word, _ in self._engine.pre_tokenizer.pre_tokenize_str(normal)]
            return str(self._engine.decoder.decode(words))

    def __len__(self) -> int:
        """The vocabulary size: one more than the largest id."""
        return self._size

    def token(self, number: int) -> str:
        """The spelling of an id."""
        found = self._engine.id_to_token(int(number)) if 0 <= number < len(self) else None
        if found is None:
            raise SettingError(f"id {number}", f"0 to {len(self) - 1}", where="Tokenizer.token")
        return str(found)

    def id(self, token: str) -> int:
        """The id of a piece or special token, spelled as in the vocabulary."""
        found = self._engine.token_to_id(token)
        if found is None:
            raise unknown(token, self._engine.get_vocab(), kind="token", where="Tokenizer.id")
        return int(found)

    @cached_property
    def fingerprint(self) -> str:
        """A hash; two tokenizers with the same one encode every text alike."""
        roles = json.dumps(self.special.roles, sort_keys=True)
        return hashlib.sha256(f"{self._description}\n{roles}".encode()).hexdigest()

    @cached_property
    def _size(self) -> int:
        return max(self._engine.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def _engine(self) -> Engine:
        """The tokenizer of the `tokenizers` library, as in the file."""
        return parse_engine(self._description, "Tokenizer")

    @cached_property
    def _literal_engine(self) -> Engine:
        """The same without special tokens in the text: "[MASK]" is ordinary text."""
        engine = parse_engine(_hide_special_tokens(json.loads(self._description), self.special), "Tokenizer")
        engine.encode_special_tokens = True
        return engine

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str, SpecialIds]]:
        return Tokenizer, (self._description, self.special)

    def __repr__(self) -> str:
        return f"<Tokenizer {json.loads(self._description)['model'].get('type')} of {len(self)} pieces>"


class _UnicodeCheck:
    """Replaces the library's errors about invalid text by clear ones."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (TypeError, UnicodeError)):
            return
        for number, text in enumerate(self.texts):
            if not isinstance(text, str):
                raise DtypeError(f"text {number} of type {type(text).__name__}", "str", where="Tokenizer") from error
            lone = next((at for at, sign in enumerate(text) if "\ud800" <= sign <= "\udfff"), None)
            if lone is not None:
                raise DtypeError(
                    f"Text {number} is not valid Unicode: a lone surrogate, {text[lone]!r}, at {lone}",
                    where="Tokenizer",
                    advice='Read files with encoding="utf-8".',
                ) from error


def _canonical(description: Mapping[str, Any]) -> str:
    return json.dumps(description, ensure_ascii=False, separators=(",", ":"))


def _hide_special_tokens(description: dict[str, Any], special: SpecialIds) -> str:
    """The description with unmatchable spellings of the special tokens, so that the model never finds them in text."""
    model = description["model"]
    by_list = isinstance(model["vocab"], list)
    hidden = special.all - {special.unknown}
    for token in description["added_tokens"]:
        if token["id"] not in hidden:
            continue
        content, disguise = token["content"], f"\uffff{token['content']}\uffff"
        if by_list and token["id"] < len(model["vocab"]):
            model["vocab"][token["id"]][0] = token["content"] = disguise
        elif not by_list and content in model["vocab"]:
            model["vocab"][disguise] = model["vocab"].pop(content)
            token["content"] = disguise
    return _canonical(description)


SHOWN_PIECES = 12  # in the repr of an encoding


class Encoding:
    """The encoding of one text: ids, pieces, character offsets and word indices, each computed on first access."""

    def __init__(self, text: str, raw: RawEncoding, spell: Callable[[int], str], splitter: Splitter) -> None:
        self.text, self._raw, self._spell, self._splitter = text, raw, spell, splitter

    @cached_property
    def ids(self) -> list[int]:
        """The id of each piece."""
        ids: list[int] = self._raw.ids
        return ids

    @cached_property
    def pieces(self) -> list[str]:
        """Each piece as spelled in the vocabulary."""
        return [self._spell(number) for number in self.ids]

    @cached_property
    def offsets(self) -> list[Span]:
        """The span of each piece in the original text, without leading space: text[start:end].

        A piece of white space alone keeps it; one without characters in the text is empty. Combining marks that the
        normal form reorders are counted in the order of the text.
        """
        spans = _widen(self.text, self._raw.offsets)
        return [_trim(self.text, span, piece) for span, piece in zip(spans, self.pieces, strict=True)]

    @cached_property
    def words(self) -> list[int]:
        """The index of the word of each piece; white space belongs to the next word."""
        return word_indices(self._splitter(self.text), self.offsets)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        shown = self.pieces[:SHOWN_PIECES]
        return f"<Encoding of {len(self)} pieces: {' '.join(shown)}{' ...' if len(self) > len(shown) else ''}>"


def _widen(text: str, offsets: list[Span]) -> list[Span]:
    """Extend each piece over the characters composed into its last one, which the library leaves out."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    nexts = [start for start, _ in offsets[1:]] + [len(text)]
    return [(a, b + _gap_length(text[b:after])) for (a, b), after in zip(offsets, nexts, strict=True)]


def _gap_length(gap: str) -> int:
    """The number of characters before the first space in a gap between two pieces."""
    return next((at for at, sign in enumerate(gap) if sign.isspace()), len(gap))


def _trim(text: str, span: Span, piece: str) -> Span:
    """A span without leading space; for a piece that begins with a metaspace, a literal ▁ is space too."""
    start, end = span
    space = _SPACE_OR_SIGN if piece.startswith("▁") else _SPACE
    bare = space.sub("", text[start:end])
    if piece == "▁" and bare:
        return start, start  # the space added before every text, which is no character of it
    return (end - len(bare), end) if bare else span


_SPACE = re.compile(r"^\s+")
_SPACE_OR_SIGN = re.compile(r"^[\s▁]+")
