"""A tokenizer turns text into the ids of its pieces and back; it is one `tokenizer.json` that Hugging Face reads too.

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
from regard.files import write_whole
from regard.text.tokenizers.kinds import Kind, Progress, learn
from regard.text.tokenizers.specials import SpecialIds, find_roles, special_ids
from regard.text.words import Span, Splitter, numbers, spaced


class Tokenizer:
    """Text to ids and back. What the text says stays text: a literal "[MASK]" in it never becomes the special token."""

    def __init__(self, description: str, special: SpecialIds) -> None:
        """`description` is the text of a tokenizer.json; `train` and `load` are the usual ways here."""
        self._description = description
        self.special = special

    @classmethod
    def train(cls, kind: Kind, texts: Iterable[str], progress: Progress | None = None) -> Tokenizer:
        """Learn a vocabulary of a kind from texts, which are streamed; the same texts give the same tokenizer."""
        return cls._of(learn(kind, texts, progress), {})

    @classmethod
    def load(cls, path: str | os.PathLike[str], roles: Mapping[str, str] | None = None) -> Tokenizer:
        """Read any tokenizer.json; `roles` name special tokens whose spelling is not well known ({"end": "<eot>"})."""
        try:
            engine = Engine.from_str(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingError(f"{path} ({error.strerror})", "a tokenizer.json", where="Tokenizer.load") from error
        except Exception as error:  # the library raises no class of its own
            raise SettingError(f"a file it cannot use ({error})", "a tokenizer.json", where=f"{path}") from error
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
        """Write one tokenizer.json. Roles given by hand at `load` are not in it: give them again."""
        try:
            write_whole(Path(path), self._description.encode())
        except OSError as error:
            raise SettingError(f"{path} ({error.strerror})", "a file to write", where="Tokenizer.save") from error

    def encode(self, text: str, *, specials: bool = False, words: Splitter = spaced) -> Encoding:
        """The pieces of a text. `specials=True` reads "[MASK]" and its like in the text as the special tokens.

        `words` says what a word is where pieces are numbered by word.
        """
        return self.encode_batch([text], specials=specials, words=words)[0]

    def encode_batch(self, texts: Sequence[str], *, specials: bool = False, words: Splitter = spaced) -> list[Encoding]:
        """The pieces of many texts, on all cores."""
        engine = self._whole if specials else self._textual
        with _Readable(texts):
            raw = engine.encode_batch(list(texts), add_special_tokens=False)
        return [Encoding(text, one, self.token, words) for text, one in zip(texts, raw, strict=True)]

    def ids_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts and nothing else: as `encode_batch`, quicker."""
        with _Readable(texts):
            return [one.ids for one in self._textual.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """The text of some ids; special tokens are left out, or shown with `specials=True`."""
        return self.decode_batch([ids], specials=specials)[0]

    def decode_batch(self, sequences: Sequence[Sequence[int]], *, specials: bool = False) -> list[str]:
        """The text of each sequence of ids."""
        sequences = [list(map(int, ids)) for ids in sequences]
        for ids in sequences:
            if ids and not 0 <= min(ids) <= max(ids) < len(self):
                raise SettingError(f"ids from {min(ids)} to {max(ids)}", f"0 to {len(self) - 1}", where="decode")
        return list(self._whole.decode_batch(sequences, skip_special_tokens=not specials))

    def normalize(self, text: str) -> str:
        """What encoding and decoding give back where nothing is unknown: this tokenizer with an endless vocabulary."""
        with _Readable([text]):
            normal = self._whole.normalizer.normalize_str(text) if self._whole.normalizer else text
        if self._whole.pre_tokenizer is None or self._whole.decoder is None:
            return str(normal)
        return str(self._whole.decoder.decode([word for word, _ in self._whole.pre_tokenizer.pre_tokenize_str(normal)]))

    def __len__(self) -> int:
        """One more than the largest id: the rows of an embedding."""
        return self._size

    def token(self, number: int) -> str:
        """The spelling of an id."""
        found = self._whole.id_to_token(int(number)) if 0 <= number < len(self) else None
        if found is None:
            raise SettingError(f"id {number}", f"0 to {len(self) - 1}", where="Tokenizer.token")
        return str(found)

    def id(self, token: str) -> int:
        """The id of a piece or special token, spelled as in the vocabulary."""
        found = self._whole.token_to_id(token)
        if found is None:
            raise unknown(token, self._whole.get_vocab(), kind="token", where="Tokenizer.id")
        return int(found)

    @cached_property
    def fingerprint(self) -> str:
        """Two tokenizers with one fingerprint do the same to every text."""
        roles = json.dumps(self.special.roles, sort_keys=True)
        return hashlib.sha256(f"{self._description}\n{roles}".encode()).hexdigest()

    @cached_property
    def _size(self) -> int:
        return max(self._whole.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def _whole(self) -> Engine:
        """The library's tokenizer as it is in the file."""
        return Engine.from_str(self._description)

    @cached_property
    def _textual(self) -> Engine:
        """The library's tokenizer that takes all text for text."""
        engine = Engine.from_str(_without_spellings(json.loads(self._description), self.special))
        engine.encode_special_tokens = True
        return engine

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str, SpecialIds]]:
        return Tokenizer, (self._description, self.special)

    def __repr__(self) -> str:
        return f"<Tokenizer {json.loads(self._description)['model'].get('type')} of {len(self)} pieces>"


class _Readable:
    """Says in words what the library says in riddles: text that is no text."""

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
                    f"text {number} with half a character ({text[lone]!r} at {lone})",
                    "valid Unicode",
                    where="Tokenizer",
                    advice='Read files with encoding="utf-8".',
                ) from error


def _canonical(description: Mapping[str, Any]) -> str:
    return json.dumps(description, ensure_ascii=False, separators=(",", ":"))


def _without_spellings(description: dict[str, Any], special: SpecialIds) -> str:
    """The description with its special tokens spelled as no text is, so that the model cannot match them in one."""
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


class Encoding:
    """The pieces of one text, piece by piece; what nobody asks for is never computed."""

    def __init__(self, text: str, raw: RawEncoding, spell: Callable[[int], str], splitter: Splitter) -> None:
        self.text, self._raw, self._spell, self._splitter = text, raw, spell, splitter

    @cached_property
    def ids(self) -> list[int]:
        """The number of each piece in the vocabulary."""
        ids: list[int] = self._raw.ids
        return ids

    @cached_property
    def pieces(self) -> list[str]:
        """The spelling of each piece in the vocabulary."""
        return [self._spell(number) for number in self.ids]

    @cached_property
    def offsets(self) -> list[Span]:
        """Where each piece stands in the text as it came, without the space before it: text[start:end].

        A piece that is nothing but space keeps it; one that stands for no character of the text is empty. Where the
        normal form puts marks on one letter in another order, they are counted in the order of the text.
        """
        spans = _widened(self.text, self._raw.offsets)
        return [_trimmed(self.text, span, piece) for span, piece in zip(spans, self.pieces, strict=True)]

    @cached_property
    def words(self) -> list[int]:
        """The number of the word each piece lies in; space counts with the word that follows it."""
        return numbers(self._splitter(self.text), self.offsets)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"<Encoding {self.pieces}>"


def _widened(text: str, offsets: list[Span]) -> list[Span]:
    """Let each piece reach over the characters that were composed into its last one; the library forgets them."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    nexts = [start for start, _ in offsets[1:]] + [len(text)]
    return [(a, b + _reach(text[b:after])) for (a, b), after in zip(offsets, nexts, strict=True)]


def _reach(gap: str) -> int:
    """How many characters stand before the first space of a gap between two pieces."""
    return next((at for at, sign in enumerate(gap) if sign.isspace()), len(gap))


def _trimmed(text: str, span: Span, piece: str) -> Span:
    """A stretch without the space before it; to a piece that begins with a space, a literal ▁ is one too."""
    start, end = span
    space = _SPACE_OR_SIGN if piece.startswith("▁") else _SPACE
    bare = space.sub("", text[start:end])
    if piece == "▁" and bare:
        return start, start  # the space that stands before every text, and is no character of it
    return (end - len(bare), end) if bare else span


_SPACE = re.compile(r"^\s+")
_SPACE_OR_SIGN = re.compile(r"^[\s▁]+")
