"""Verification of a CTranslate2 export: both programs generate and score the same texts."""

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

from regard.adapters import pad_ids
from regard.decoding import Greedy, Rules, teacher_force
from regard.errors import CheckpointError
from regard.exports.atomic_export import ExportCheck
from regard.exports.ctranslate2.vocabulary import ExportVocabularies
from regard.models import GPT
from regard.text import DocumentFields, Tokenizer
from regard.training.tasks import BuiltInPairs, BuiltInText, LanguageRecipe, TranslationRecipe

TEXTS, MAX_LENGTH = 8, 32
REL_TOL, ABS_TOL = 1e-4, 1e-3  # of ln p in float32


class Prompt(NamedTuple):
    """A text to continue: the inputs of a Stepper, the first token to step with, and the reference continuation."""

    inputs: list[int]
    first: int
    reference: list[int]


@dataclass(frozen=True, eq=False)
class Verification(ABC):
    """A model with its vocabularies and prompts; the subclasses run them in CTranslate2."""

    model: Any  # a Stepper
    vocabularies: ExportVocabularies
    prompts: Sequence[Prompt]

    @property
    def max_length(self) -> int:
        return MAX_LENGTH

    @abstractmethod
    def run_ctranslate2(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        """What CTranslate2 generates for each prompt, at most `max_length` tokens, and ln p of its reference."""

    def run(self, folder: Path, quantization: str) -> ExportCheck:
        """Compare all prompts; in float32 the first difference beyond rounding is an error."""
        exact = quantization == "float32"
        texts, log_probs = self.run_ctranslate2(folder, quantization if quantization.startswith("int8") else "float32")
        if exact:
            for prompt, ours, theirs in zip(self.prompts, self._score(self.prompts), log_probs, strict=True):
                self._expect_same_log_probs(prompt, ours, theirs)
        equal, same, count = 0, 0, 0
        for prompt, our_text, their_text in zip(self.prompts, self._generate(), texts, strict=True):
            if exact:
                self._expect_same_text(prompt, our_text, their_text)
            longer = max(len(our_text), len(their_text))
            matches = sum(a == b for a, b in zip(our_text, their_text, strict=False))
            equal, same, count = equal + (matches == longer), same + matches, count + longer
        return ExportCheck(len(self.prompts), equal, same / count if count else 1.0)

    def _generate(self) -> list[list[str]]:
        """What our model generates for each prompt, with the end token where it is finished."""
        texts = Greedy()(self.model, *self._start(self.prompts), Rules(self.vocabularies.end_id(), self.max_length))
        ends = [[self.vocabularies.end] if text.finished else [] for [text] in texts]
        return [[*self._tokens(text.tokens), *end] for [text], end in zip(texts, ends, strict=True)]

    def _score(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        """ln p of the reference of each prompt."""
        references, lengths = pad_ids([one.reference for one in prompts], 0)
        log_probs, _ = teacher_force(self.model, *self._start(prompts), references, lengths)
        return [row[: len(one.reference)].tolist() for row, one in zip(log_probs, prompts, strict=True)]

    def _start(self, prompts: Sequence[Prompt]) -> tuple[Any, torch.Tensor]:
        inputs, lengths = pad_ids([one.inputs for one in prompts], 0)
        return self.model.start(inputs, lengths), torch.tensor([one.first for one in prompts])

    def _expect_same_log_probs(self, prompt: Prompt, ours: Sequence[float], theirs: Sequence[float]) -> None:
        for at, (expected, got) in enumerate(zip(ours, theirs, strict=True)):
            if not _is_close(expected, got):
                reference = prompt.reference
                token, context = self.vocabularies.target[reference[at]], self._context(prompt, reference[:at])
                raise CheckpointError(
                    f"ln p = {got:.4f} of {token!r} after {context}",
                    f"{expected:.4f}, as in the run",
                    where="CTranslate2",
                )

    def _expect_same_text(self, prompt: Prompt, ours: Sequence[str], theirs: Sequence[str]) -> None:
        length = min(len(ours), len(theirs))
        at = next((at for at in range(length) if ours[at] != theirs[at]), length)
        if at == len(ours) == len(theirs):
            return
        target = self.vocabularies.target
        before = [target.index(token) for token in ours[:at]]
        if at < length:
            both = [prompt._replace(reference=[*before, target.index(one[at])]) for one in (ours, theirs)]
            if _is_close(*(log_probs[-1] for log_probs in self._score(both))):
                return  # equally likely: either may be generated
        got, expected = (repr(one[at]) if at < len(one) else "nothing" for one in (theirs, ours))
        raise CheckpointError(
            f"{got} after {self._context(prompt, before)}", f"{expected}, as from the run", where="CTranslate2"
        )

    def _context(self, prompt: Prompt, after: Sequence[int]) -> str:
        return repr(" ".join(self._tokens([prompt.first, *after])))

    def _tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabularies.target[one] for one in ids]


class VerifyLanguageModel(Verification):
    """A GPT continues texts."""

    @property
    def max_length(self) -> int:
        return max((len(one.reference) for one in self.prompts), default=1)

    def run_ctranslate2(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        generator = ctranslate2.Generator(str(folder), compute_type=compute)
        starts = [self._tokens([*one.inputs, one.first]) for one in self.prompts]
        found = generator.generate_batch(
            starts, max_length=self.max_length, include_prompt_in_result=False, return_end_token=True
        )
        scored = generator.score_batch([self._tokens([*one.inputs, one.first, *one.reference]) for one in self.prompts])
        log_probs = [score.log_probs[len(one.inputs) :] for score, one in zip(scored, self.prompts, strict=True)]
        return [one.sequences[0] for one in found], log_probs


class VerifyTranslator(Verification):
    """A Transformer translates sentences."""

    def run_ctranslate2(self, folder: Path, compute: str) -> tuple[list[list[str]], list[list[float]]]:
        translator = ctranslate2.Translator(str(folder), compute_type=compute)
        sources = [[self.vocabularies.source[token] for token in one.inputs[:-1]] for one in self.prompts]
        targets = [self._tokens(one.reference[:-1]) for one in self.prompts]
        found = translator.translate_batch(
            sources, beam_size=1, max_decoding_length=self.max_length, min_decoding_length=0, return_end_token=True
        )
        log_probs = [one.log_probs for one in translator.score_batch(sources, targets)]
        return [one.hypotheses[0] for one in found], log_probs


def language_model_prompts(recipe: LanguageRecipe, model: GPT, tokenizer: Tokenizer, run: Path) -> list[Prompt]:
    """Passages of validation text, half of each as the prompt; random tokens where the run has text of its own."""
    size = min(MAX_LENGTH, model.max_positions or MAX_LENGTH)
    if isinstance(recipe.data, BuiltInText):
        few = recipe.data.model_copy(update={"examples": 1, "valid": TEXTS})
        stream = few.read(run, DocumentFields(tokenizer)).valid
        assert stream is not None
        starts = np.linspace(0, max(0, len(stream) - size), TEXTS).astype(int)
        found = [stream.read(np.arange(start, min(start + size, len(stream)))[None])[0].tolist() for start in starts]
    else:
        found = _random_ids(tokenizer, [size] * TEXTS)
    halves = [max(1, len(ids) // 2 - at % 3) for at, ids in enumerate(found)]  # prompts of several lengths
    max_reference = size - size // 2
    return [
        Prompt(ids[: half - 1], ids[half - 1], ids[half : half + max_reference])
        for half, ids in zip(halves, found, strict=True)
    ]


def translation_prompts(recipe: TranslationRecipe, source: Tokenizer, target: Tokenizer) -> list[Prompt]:
    """Validation sentences; random tokens where the run has text of its own."""
    if isinstance(recipe.data, BuiltInPairs):
        drawn = list(recipe.data.generate("valid", TEXTS))
        sources = source.ids_batch([pair.source for pair in drawn])
        targets = target.ids_batch([pair.target for pair in drawn])
    else:
        sizes = range(5, 5 + TEXTS)
        sources, targets = _random_ids(source, sizes), _random_ids(target, sizes)
    start, end = target.special.need("start"), target.special.need("end")
    return [
        Prompt([*ids, source.special.need("end")], start, [*others, end])
        for ids, others in zip(sources, targets, strict=True)
    ]


def _is_close(ours: float, theirs: float) -> bool:
    return isclose(ours, theirs, rel_tol=REL_TOL, abs_tol=ABS_TOL)


def _random_ids(tokenizer: Tokenizer, sizes: Sequence[int]) -> list[list[int]]:
    """Random tokens, the same ones every time."""
    plain = np.array([number for number in range(len(tokenizer)) if number not in tokenizer.special.all])
    rng = np.random.default_rng(0)
    return [rng.choice(plain, size).tolist() for size in sizes]
