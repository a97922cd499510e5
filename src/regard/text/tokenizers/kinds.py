"""The kinds of tokenizer, as values: how each normalises, cuts, learns its pieces and joins them again.

    BPE(8000)  ByteBPE(8000)  WordPiece(8000, lowercase=True)  Unigram(8000)  Words(8000)  Characters()

A vocabulary may come out smaller than asked, where the text has no more pieces to give; never larger.
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

Progress = Callable[[int], None]  # is told how many texts have just been read
BATCH = 1000  # texts handed to the trainer at once


@dataclass(frozen=True, slots=True)
class BPE:
    """Byte-pair encoding of characters: the commonest pair becomes one piece, again and again."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = _metaspaced(models.BPE(unk_token=PLAIN["unknown"], fuse_unk=True), _WORDS_AND_PUNCTUATION)
        engine.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=self.size, **_asked(PLAIN)))
        return engine


@dataclass(frozen=True, slots=True)
class ByteBPE:
    """Byte-pair encoding of bytes, as GPT-2's: nothing is unknown, every text comes back as it was."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        if self.size < len(alphabet) + len(PLAIN):
            raise _too_small(self, len(alphabet) + len(PLAIN), "256 bytes")
        asked = _asked(PLAIN)
        # the mask takes the space before it, as the word it stands for would: "Ġhit"
        asked["special_tokens"][-1] = AddedToken(PLAIN["mask"], special=True, lstrip=True)
        trainer = trainers.BpeTrainer(vocab_size=self.size, initial_alphabet=alphabet, **asked)
        engine.train_from_iterator(texts, trainer)
        return engine


@dataclass(frozen=True, slots=True)
class WordPiece:
    """BERT's: text cleaned (and lowercased, accents dropped), cut at spaces, punctuation and Chinese characters."""

    size: int
    lowercase: bool = True

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = self._engine(models.WordPiece({}, unk_token=BERT["unknown"]))
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
            characters = _spool(engine, texts, spool)
            # The library numbers "##a", "##b", ... in the order of a hash table, which differs from run to run and
            # decides between equal pairs (huggingface/tokenizers#1794); named beforehand, they have one order.
            asked = _asked(BERT)
            asked["special_tokens"] += [f"##{character}" for character in characters]
            trainer = trainers.WordPieceTrainer(vocab_size=self.size, initial_alphabet=characters, **asked)
            engine.train_from_iterator(spool, trainer)
        vocabulary = engine.get_vocab(with_added_tokens=True)
        trained = self._engine(models.WordPiece(vocabulary, unk_token=BERT["unknown"]))
        trained.add_special_tokens(_added(BERT))
        return trained

    def _engine(self, model: models.WordPiece) -> Engine:
        engine = Engine(model)
        engine.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(cleanup=False)
        return engine


@dataclass(frozen=True, slots=True)
class Unigram:
    """A unigram language model of pieces (Kudo 2018): the likeliest way to cut each word."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = _metaspaced(models.Unigram(), _WORDS_AND_PUNCTUATION)
        trainer = trainers.UnigramTrainer(vocab_size=self.size, unk_token=PLAIN["unknown"], **_asked(PLAIN))
        try:
            engine.train_from_iterator(texts, trainer)
        except Exception as error:  # the library has no class for it
            if "not large enough" not in str(error):
                raise
            raise SettingError(f"size={self.size}", "room for every character", where=f"{self}") from error
        return _steadied(engine)


@dataclass(frozen=True, slots=True)
class Words:
    """Whole words, cut at spaces alone; the commonest ones have an id, the others are unknown."""

    size: int

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        if self.size <= len(PLAIN):
            raise _too_small(self, len(PLAIN) + 1, "one word")
        engine = _metaspaced(models.WordLevel({}, unk_token=PLAIN["unknown"]), _WORDS)
        engine.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=self.size, **_asked(PLAIN)))
        return engine


@dataclass(frozen=True, slots=True)
class Characters:
    """Every character is a piece, spaces too; the text comes back up to Unicode's composed form (NFC)."""

    def learn(self, texts: Iterator[list[str]]) -> Engine:
        engine = Engine(models.WordLevel({}, unk_token=PLAIN["unknown"]))
        engine.normalizer = normalizers.NFC()
        engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
        engine.decoder = decoders.Fuse()
        engine.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=2**21, **_asked(PLAIN)))
        return engine


Kind = BPE | ByteBPE | WordPiece | Unigram | Words | Characters


def learn(kind: Kind, texts: Iterable[str], progress: Progress | None = None) -> Engine:
    """Train the library's tokenizer of a kind on texts, which are streamed and never held whole."""
    if isinstance(kind, type):
        raise SettingError(
            f"the class {kind.__name__}", f"a value, such as {kind.__name__}(8000)", where="Tokenizer.train"
        )
    if isinstance(texts, str):
        raise SettingError("a single text", "a list of texts, or any iterable of them", where="Tokenizer.train")
    count = _Count()
    try:
        engine = kind.learn(_batches(texts, count, progress))
    except UnicodeError as error:
        came = f"half a character among the first {count.texts} texts ({error})"
        raise CorpusError(came, "valid Unicode", where=f"{kind}") from error
    learned = engine.get_vocab_size(with_added_tokens=True)
    if count.characters == 0:
        raise CorpusError(
            f"{count.texts} texts without a character other than space", "text to learn from", where=f"{kind}"
        )
    if not isinstance(kind, Characters) and learned > kind.size:
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
                raise CorpusError(f"text number {number} of type {type(text).__name__}", "str", where="train")
        count.texts += len(batch)
        count.characters += sum(len(text) for text in batch if not text.isspace())
        yield batch
        if progress is not None:
            progress(len(batch))


_SIGNS = r"\p{P}$+<=>^`|~"  # punctuation, and the ASCII signs that Unicode calls symbols
_WORDS_AND_PUNCTUATION = rf"▁?[{_SIGNS}]|▁?[^▁{_SIGNS}]+|▁"
_WORDS = r"▁?[^▁]+|▁"
# all space but one plain space between words, and the sign that will stand for it; \x1c-\x1f are space to Python
_NO_SINGLE_SPACE = r"[\s\x1c-\x1f▁]{2,}|[^\S ]|[\x1c-\x1f▁]"


def _metaspaced(model: models.Model, cuts: str) -> Engine:
    """Composed text with single spaces, each space written as the first character of the piece after it."""
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(_NO_SINGLE_SPACE), " "), normalizers.Strip()]
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(Regex(cuts), "isolated")]
    )
    engine.decoder = decoders.Metaspace()
    return engine


def _asked(spellings: dict[str, str]) -> dict[str, Any]:
    return {"special_tokens": _added(spellings), "show_progress": False}


def _added(spellings: dict[str, str]) -> list[AddedToken]:
    return [AddedToken(text, special=True) for text in spellings.values()]


def _spool(engine: Engine, texts: Iterator[list[str]], spool: Any) -> list[str]:
    """Write the normalised texts aside, one a line; returns the characters they are made of, in order."""
    characters: set[str] = set()
    for batch in texts:
        for text in batch:
            line = engine.normalizer.normalize_str(text)
            characters.update(line)
            spool.write(line + "\n")
    spool.seek(0)
    return sorted(character for character in characters if not character.isspace())


def _steadied(engine: Engine) -> Engine:
    """The same pieces with scores to three decimals, in order of score and spelling.

    The library adds up likelihoods in the order of a hash table, so the last digits differ from run to run, and with
    them the order of the pieces. The differences are about 1e-11: rounding removes them.
    """
    description = json.loads(engine.to_str())
    special = len(description["added_tokens"])
    vocabulary = [[piece, round(score, 3)] for piece, score in description["model"]["vocab"]]
    pieces = sorted(vocabulary[special:], key=lambda scored: (-scored[1], scored[0]))
    description["model"]["vocab"] = vocabulary[:special] + pieces
    return Engine.from_str(json.dumps(description))


def _too_small(kind: Kind, least: int, what: str) -> SettingError:
    return SettingError(
        f"{kind}", f"a size of at least {least}: the special tokens and {what}", where="train", advice="Ask for more."
    )
