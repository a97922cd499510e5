"""What CTranslate2 knows of tokenizers: the spelling of every id, and of those that begin, end and stand for others."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import SettingError
from regard.text import Tokenizer


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of a model; a GPT has one, which is `target` too."""

    source: list[str]
    target: list[str]
    start: str
    end: str
    unknown: str

    def end_id(self) -> int:
        return self.target.index(self.end)


def of_one(tokenizer: Tokenizer) -> Vocabularies:
    """Of a language model, whose texts begin with the end of the one before where they have no start."""
    end = tokenizer.token(tokenizer.special.need("end"))
    start = end if tokenizer.special.start is None else tokenizer.token(tokenizer.special.start)
    return _words(tokenizer, tokenizer, start, end)


def of_two(source: Tokenizer, target: Tokenizer) -> Vocabularies:
    """Of a translator, which reads and writes ends of one spelling: CTranslate2 has one name for both."""
    ends = [side.token(side.special.need("end")) for side in (source, target)]
    if ends[0] != ends[1]:
        raise SettingError(
            f"sources that end with {ends[0]!r} and targets that end with {ends[1]!r}",
            "one spelling, which is all that CTranslate2 knows",
            where="regard export --to ctranslate2",
        )
    return _words(source, target, target.token(target.special.need("start")), ends[1])


def _words(source: Tokenizer, target: Tokenizer, start: str, end: str) -> Vocabularies:
    read, written = ([side.token(number) for number in range(len(side))] for side in (source, target))
    # It must be in both: CTranslate2 adds an unknown token that it misses, for which there are no weights.
    roles = [side.token(number) for side in (source, target) for number in _unknowns(side)]
    unknown = next((one for one in roles if one in read and one in written), end)
    return Vocabularies(read, written, start, end, unknown)


def _unknowns(side: Tokenizer) -> list[int]:
    return [number for number in (side.special.unknown, side.special.pad) if number is not None]
