"""Vocabularies for CTranslate2: the token of every id, and the start, end and unknown tokens."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import SettingError
from regard.text import Tokenizer


@dataclass(frozen=True)
class ExportVocabularies:
    """The vocabularies of a model; a language model has one, as `source` and `target`."""

    source: list[str]
    target: list[str]
    start: str
    end: str
    unknown: str

    def end_id(self) -> int:
        return self.target.index(self.end)


def language_model_vocabularies(tokenizer: Tokenizer) -> ExportVocabularies:
    """Of a language model; where the tokenizer has no start token, texts begin with the end token."""
    end = tokenizer.token(tokenizer.special.need("end"))
    start = end if tokenizer.special.start is None else tokenizer.token(tokenizer.special.start)
    return _vocabularies(tokenizer, tokenizer, start, end)


def translator_vocabularies(source: Tokenizer, target: Tokenizer) -> ExportVocabularies:
    """Of a translator; source and target must share one end token, since CTranslate2 has one for both."""
    ends = [side.token(side.special.need("end")) for side in (source, target)]
    if ends[0] != ends[1]:
        raise SettingError(
            f"end tokens {ends[0]!r} of the source and {ends[1]!r} of the target",
            "one end token for both, since CTranslate2 has only one",
            where="regard export --to ctranslate2",
        )
    return _vocabularies(source, target, target.token(target.special.need("start")), ends[1])


def _vocabularies(source: Tokenizer, target: Tokenizer, start: str, end: str) -> ExportVocabularies:
    sources, targets = ([side.token(number) for number in range(len(side))] for side in (source, target))
    # It must be in both: CTranslate2 adds a missing unknown token, for which there are no weights.
    roles = [side.token(number) for side in (source, target) for number in _unknown_ids(side)]
    unknown = next((one for one in roles if one in sources and one in targets), end)
    return ExportVocabularies(sources, targets, start, end, unknown)


def _unknown_ids(side: Tokenizer) -> list[int]:
    return [number for number in (side.special.unknown, side.special.pad) if number is not None]
