"""Tokenizer training: byte-pair encoding (BPE), WordPiece, unigram, word-level and character-level.

    BPE(8000)  ByteBPE(8000)  WordPiece(8000, lowercase=True)  Unigram(8000)  WordLevel(8000)  CharacterLevel()

Each value says how text is normalised, split, learned from and decoded. A vocabulary is never larger than `size`, and
smaller where the text has no more pieces.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer as Engine, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import CorpusError, SettingError
from regard.text.tokenizers.specials import BERT, PLAIN

Progress = Callable[[int], None]  # called with the number of texts just read
BATCH = 1000  # texts passed to the trainer at once


@dataclass(frozen=True, slots=True)
class BPE:
    """Byte-pair encoding (BPE) of characters: the most frequent pair is merged into one piece, again and again."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = _metaspace_engine(models.BPE(unk_token=PLAIN["unknown"], fuse_unk=True), _WORDS_AND_PUNCTUATION)
        engine.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=self.size, **_trainer_settings(PLAIN)))
        return engine


@dataclass(frozen=True, slots=True)
class ByteBPE:
    """Byte-level BPE, as GPT-2's: there is no unknown token, and decoding restores every text."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        if self.size < len(alphabet) + len(PLAIN):
            raise _too_small(self, len(alphabet) + len(PLAIN), "256 bytes")
        settings = _trainer_settings(PLAIN)
        # the mask absorbs the space before it, as a word does: "Ġhit"
        settings["special_tokens"][-1] = AddedToken(PLAIN["mask"], special=True, lstrip=True)
        trainer = trainers.BpeTrainer(vocab_size=self.size, initial_alphabet=alphabet, **settings)
        engine.train_from_iterator(texts, trainer)
        return engine


@dataclass(frozen=True, slots=True)
class WordPiece:
    """WordPiece, as BERT's: text cleaned (lowercased, without accents), split at spaces and punctuation."""

    size: int
    lowercase: bool = True

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = self._engine(models.WordPiece({}, unk_token=BERT["unknown"]))
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
            characters = _spool(engine, texts, spool)
            # The library numbers "##a", "##b", ... in the order of a hash table, which differs from run to run and
            # decides between equal pairs (huggingface/tokenizers#1794); listing them first fixes the order.
            settings = _trainer_settings(BERT)
            settings["special_tokens"] += [f"##{character}" for character in characters]
            trainer = trainers.WordPieceTrainer(vocab_size=self.size, initial_alphabet=characters, **settings)
            engine.train_from_iterator(spool, trainer)
        vocabulary = engine.get_vocab(with_added_tokens=True)
        trained = self._engine(models.WordPiece(vocabulary, unk_token=BERT["unknown"]))
        trained.add_special_tokens(_added_tokens(BERT))
        return trained

    def _engine(self, model: models.WordPiece) -> Engine:
        engine = Engine(model)
        engine.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(cleanup=False)
        return engine


@dataclass(frozen=True, slots=True)
class Unigram:
    """A unigram language model of pieces (Kudo 2018): the most probable segmentation of each word."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = _metaspace_engine(models.Unigram(), _WORDS_AND_PUNCTUATION)
        trainer = trainers.UnigramTrainer(vocab_size=self.size, unk_token=PLAIN["unknown"], **_trainer_settings(PLAIN))
        try:
            engine.train_from_iterator(texts, trainer)
        except Exception as error:  # the library has no class for it
            if "not large enough" not in str(error):
                raise
            raise SettingError(
                f"A vocabulary of {self.size} is too small for the characters of the text", where=f"{self}"
            ) from error
        return _deterministic_unigram(engine)


@dataclass(frozen=True, slots=True)
class WordLevel:
    """Whole words, split at spaces alone; the most frequent ones have an id, the others are unknown."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        if self.size <= len(PLAIN):
            raise _too_small(self, len(PLAIN) + 1, "one word")
        engine = _metaspace_engine(models.WordLevel({}, unk_token=PLAIN["unknown"]), _WORDS)
        engine.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=self.size, **_trainer_settings(PLAIN)))
        return engine


@dataclass(frozen=True, slots=True)
class CharacterLevel:
    """Every character is a piece, spaces too; decoding restores the text in NFC."""

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = Engine(models.WordLevel({}, unk_token=PLAIN["unknown"]))
        engine.normalizer = normalizers.NFC()
        engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
        engine.decoder = decoders.Fuse()
        engine.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=2**21, **_trainer_settings(PLAIN)))
        return engine


TokenizerKind = BPE | ByteBPE | WordPiece | Unigram | WordLevel | CharacterLevel


def train_engine(kind: TokenizerKind, texts: Iterable[str], progress: Progress | None = None) -> Engine:
    """Train a tokenizer of the `tokenizers` library on a stream of texts."""
    if isinstance(kind, type):
        raise SettingError(
            f"the class {kind.__name__}", f"an instance, such as {kind.__name__}(8000)", where="Tokenizer.train"
        )
    if isinstance(texts, str):
        raise SettingError("a str", "an iterable of texts", where="Tokenizer.train")
    count = _Count()
    try:
        engine = kind.learn(_batches(texts, count, progress))
    except UnicodeError as error:
        problem = f"One of the first {count.texts} texts is not valid Unicode ({error})"
        raise CorpusError(problem, where=f"{kind}") from error
    learned = engine.get_vocab_size(with_added_tokens=True)
    if count.characters == 0:
        raise CorpusError(f"The {count.texts} texts contain nothing but white space", where=f"{kind}")
    if not isinstance(kind, CharacterLevel) and learned > kind.size:
        raise _too_small(kind, learned, "every character of the text")
    return engine


@dataclass(slots=True)
class _Count:
    texts: int = 0
    characters: int = 0


def _batches(texts: Iterable[str], count: _Count, progress: Progress | None) -> Iterator[list[str]]:
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        for number, text in enumerate(batch, start=count.texts):
            if not isinstance(text, str):
                raise CorpusError(f"text {number} of type {type(text).__name__}", "str", where="Tokenizer.train")
        count.texts += len(batch)
        count.characters += sum(len(text) for text in batch if not text.isspace())
        yield batch
        if progress is not None:
            progress(len(batch))


_SIGNS = r"\p{P}$+<=>^`|~"  # punctuation, and the ASCII signs that Unicode calls symbols
_WORDS_AND_PUNCTUATION = rf"▁?[{_SIGNS}]|▁?[^▁{_SIGNS}]+|▁"
_WORDS = r"▁?[^▁]+|▁"
# white space other than single spaces, and the metaspace sign; \x1c-\x1f are white space to Python
_NO_SINGLE_SPACE = r"[\s\x1c-\x1f▁]{2,}|[^\S ]|[\x1c-\x1f▁]"


def _metaspace_engine(model: models.Model, cuts: str) -> Engine:
    """NFC text with single spaces, each a metaspace at the start of the next piece."""
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(_NO_SINGLE_SPACE), " "), normalizers.Strip()]
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(Regex(cuts), "isolated")]
    )
    engine.decoder = decoders.Metaspace()
    return engine


def _trainer_settings(spellings: dict[str, str]) -> dict[str, Any]:
    return {"special_tokens": _added_tokens(spellings), "show_progress": False}


def _added_tokens(spellings: dict[str, str]) -> list[AddedToken]:
    return [AddedToken(text, special=True) for text in spellings.values()]


def _spool(engine: Engine, texts: Iterator[list[str]], spool: Any) -> list[str]:
    """Write the normalised texts to a file, one a line; returns their characters, sorted."""
    characters: set[str] = set()
    for batch in texts:
        for text in batch:
            line = engine.normalizer.normalize_str(text)
            characters.update(line)
            spool.write(line + "\n")
    spool.seek(0)
    return sorted(character for character in characters if not character.isspace())


def _deterministic_unigram(engine: Engine) -> Engine:
    """The same pieces with scores rounded to three decimals, sorted by score and spelling, to be reproducible.

    The library sums likelihoods in the order of a hash table, so the last digits (about 1e-11) and the order of the
    pieces differ from run to run.
    """
    description = json.loads(engine.to_str())
    special = len(description["added_tokens"])
    vocabulary = [[piece, round(score, 3)] for piece, score in description["model"]["vocab"]]
    pieces = sorted(vocabulary[special:], key=lambda scored: (-scored[1], scored[0]))
    description["model"]["vocab"] = vocabulary[:special] + pieces
    return Engine.from_str(json.dumps(description))


def _too_small(kind: TokenizerKind, least: int, what: str) -> SettingError:
    return SettingError(
        f"{kind}", f"a size of at least {least}: the special tokens and {what}", where="Tokenizer.train"
    )
