"""The same texts through both programs: what comes next, token by token, and how likely each token is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2  # type: ignore[import-untyped]
import numpy as np
import torch

from regard.adapters import padded
from regard.decoding import Greedy, Rules, forced
from regard.errors import CheckpointError
from regard.exports.atomic_export import Checked
from regard.exports.ctranslate2.vocabulary import Vocabularies
from regard.models import GPT
from regard.text import DocumentFields, Tokenizer
from regard.training.tasks import BuiltInPairs, BuiltInText, Language, Translation

TEXTS, LONGEST = 8, 32
FAR, TINY = 1e-4, 1e-3  # how much ln p may differ in float32, of its size and at all


class Prompt(NamedTuple):
    """A text to go on with: what a Stepper starts from, the token to step with first, and how the text goes on."""

    read: list[int]
    first: int
    after: list[int]


@dataclass(frozen=True, eq=False)
class Verification(ABC):
    """A model of ours with its words and texts; the two kinds below know how CTranslate2 goes on with those."""

    model: Any  # a Stepper
    words: Vocabularies
    rows: Sequence[Prompt]

    @property
    def longest(self) -> int:
        return LONGEST

    @abstractmethod
    def theirs(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        """What CTranslate2 writes after each row, at most `longest` tokens, and ln p of what comes there in truth."""

    def run(self, folder: Path, quantization: str) -> Checked:
        """Go on with all rows; in float32 the first difference that is no rounding is an error."""
        exact = quantization == "float32"
        texts, chances = self.theirs(folder, quantization if quantization.startswith("int8") else "float32")
        if exact:
            for row, wanted, came in zip(self.rows, self._likely(self.rows), chances, strict=True):
                self._expect_likely(row, wanted, came)
        equal, same, count = 0, 0, 0
        for row, ours, theirs in zip(self.rows, self._written(), texts, strict=True):
            if exact:
                self._expect_written(row, ours, theirs)
            longer = max(len(ours), len(theirs))
            alike = sum(a == b for a, b in zip(ours, theirs, strict=False))
            equal, same, count = equal + (alike == longer), same + alike, count + longer
        return Checked(len(self.rows), equal, same / count if count else 1.0)

    def _written(self) -> list[list[str]]:
        """What our model writes after each row, its end too where it comes to it."""
        texts = Greedy()(self.model, *self._begun(self.rows), Rules(self.words.end_id(), self.longest))
        ends = [[self.words.end] if text.finished else [] for [text] in texts]
        return [[*self._spelled(text.tokens), *end] for [text], end in zip(texts, ends, strict=True)]

    def _likely(self, rows: Sequence[Prompt]) -> list[list[float]]:
        """ln p of what comes after each row."""
        after, lengths = padded([row.after for row in rows], 0)
        said, _ = forced(self.model, *self._begun(rows), after, lengths)
        return [one[: len(row.after)].tolist() for one, row in zip(said, rows, strict=True)]

    def _begun(self, rows: Sequence[Prompt]) -> tuple[Any, torch.Tensor]:
        read, lengths = padded([row.read for row in rows], 0)
        return self.model.start(read, lengths), torch.tensor([row.first for row in rows])

    def _expect_likely(self, row: Prompt, ours: Sequence[float], theirs: Sequence[float]) -> None:
        for at, (wanted, came) in enumerate(zip(ours, theirs, strict=True)):
            if not _close(wanted, came):
                token, before = self.words.target[row.after[at]], self._told(row, row.after[:at])
                raise CheckpointError(
                    f"ln p = {came:.4f} of {token!r} after {before}",
                    f"{wanted:.4f}, as in the run",
                    where="CTranslate2",
                )

    def _expect_written(self, row: Prompt, ours: Sequence[str], theirs: Sequence[str]) -> None:
        length = min(len(ours), len(theirs))
        at = next((at for at in range(length) if ours[at] != theirs[at]), length)
        if at == len(ours) == len(theirs):
            return
        before = [self.words.target.index(token) for token in ours[:at]]
        if at < length:
            ways = [row._replace(after=[*before, self.words.target.index(one[at])]) for one in (ours, theirs)]
            if _close(*(said[-1] for said in self._likely(ways))):
                return  # as likely as each other: either may be written
        came, wanted = (repr(one[at]) if at < len(one) else "nothing" for one in (theirs, ours))
        raise CheckpointError(
            f"{came} after {self._told(row, before)}", f"{wanted}, as from the run", where="CTranslate2"
        )

    def _told(self, row: Prompt, after: Sequence[int]) -> str:
        return repr(" ".join(self._spelled([row.first, *after])))

    def _spelled(self, tokens: Sequence[int]) -> list[str]:
        return [self.words.target[token] for token in tokens]


class VerifyLanguageModel(Verification):
    """A GPT goes on with a text."""

    @property
    def longest(self) -> int:
        return max((len(row.after) for row in self.rows), default=1)

    def theirs(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        generator = ctranslate2.Generator(str(folder), compute_type=compute)
        begun = [self._spelled([*row.read, row.first]) for row in self.rows]
        found = generator.generate_batch(
            begun, max_length=self.longest, include_prompt_in_result=False, return_end_token=True
        )
        scored = generator.score_batch([self._spelled([*row.read, row.first, *row.after]) for row in self.rows])
        likely = [one.log_probs[len(row.read) :] for one, row in zip(scored, self.rows, strict=True)]
        return [one.sequences[0] for one in found], likely


class VerifyTranslator(Verification):
    """A Transformer translates a sentence."""

    def theirs(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        translator = ctranslate2.Translator(str(folder), compute_type=compute)
        sources = [[self.words.source[token] for token in row.read[:-1]] for row in self.rows]
        targets = [self._spelled(row.after[:-1]) for row in self.rows]
        found = translator.translate_batch(
            sources, beam_size=1, max_decoding_length=self.longest, min_decoding_length=0, return_end_token=True
        )
        likely = [one.log_probs for one in translator.score_batch(sources, targets)]
        return [one.hypotheses[0] for one in found], likely


def stretches(recipe: Language, model: GPT, tokenizer: Tokenizer, run: Path) -> list[Prompt]:
    """Stretches of validation text, each half to be read; of any tokens where the run's text is not at hand."""
    size = min(LONGEST, model.longest or LONGEST)
    if isinstance(recipe.data, BuiltInText):
        few = recipe.data.model_copy(update={"examples": 1, "valid": TEXTS})
        stream = few.read(run, DocumentFields(tokenizer)).valid
        assert stream is not None
        starts = np.linspace(0, max(0, len(stream) - size), TEXTS).astype(int)
        found = [stream.read(np.arange(start, min(start + size, len(stream)))[None])[0].tolist() for start in starts]
    else:
        found = _anything(tokenizer, [size] * TEXTS)
    halves = [max(1, len(ids) // 2 - at % 3) for at, ids in enumerate(found)]  # prompts of several lengths
    longest = size - size // 2
    return [
        Prompt(ids[: half - 1], ids[half - 1], ids[half : half + longest])
        for half, ids in zip(halves, found, strict=True)
    ]


def pairs(recipe: Translation, source: Tokenizer, target: Tokenizer) -> list[Prompt]:
    """Validation sentences; any tokens where the run's text is not at hand."""
    if isinstance(recipe.data, BuiltInPairs):
        drawn = list(recipe.data.drawn("valid", TEXTS))
        read = source.ids_batch([pair.source for pair in drawn])
        written = target.ids_batch([pair.target for pair in drawn])
    else:
        sizes = range(5, 5 + TEXTS)
        read, written = _anything(source, sizes), _anything(target, sizes)
    start, end = target.special.need("start"), target.special.need("end")
    return [
        Prompt([*ids, source.special.need("end")], start, [*others, end])
        for ids, others in zip(read, written, strict=True)
    ]


def _close(ours: float, theirs: float) -> bool:
    return isclose(ours, theirs, rel_tol=FAR, abs_tol=TINY)


def _anything(tokenizer: Tokenizer, sizes: Sequence[int]) -> list[list[int]]:
    """Tokens drawn by chance, the same ones every time."""
    plain = np.array([number for number in range(len(tokenizer)) if number not in tokenizer.special.all])
    chance = np.random.default_rng(0)
    return [chance.choice(plain, size).tolist() for size in sizes]
