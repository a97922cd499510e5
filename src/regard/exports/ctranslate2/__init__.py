"""Export of runs to CTranslate2, a fast inference engine for CPUs: `export`.

export(Path("runs/transformer"), Path("ct2"), "int8")        # then: ctranslate2.Translator("ct2")

The export is verified before it is placed: both programs continue the same texts.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.adapters import adapter
from regard.errors import RunError, SettingError, unknown
from regard.exports.atomic_export import ExportCheck, atomic_folder
from regard.models import GPT, Transformer
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.training import load_recipe
from regard.training.tasks import LanguageRecipe, TranslationRecipe

if TYPE_CHECKING:
    from regard.exports.ctranslate2.ctranslate2_verify import Verification

__all__ = ["QUANTIZATIONS", "export"]

QUANTIZATIONS = ("int8", "int8_float32", "float16", "float32")
WHERE = "regard export --to ctranslate2"


@torch.no_grad()
def export(run: Path, folder: Path, quantization: str | None = None) -> ExportCheck:
    """Write a run for CTranslate2, with its tokenizers, and return on how many texts the two agree.

    In float32, the default, they must agree on all texts, and in the probability of every token.
    """
    quantization = quantization or "float32"
    if quantization not in QUANTIZATIONS:
        raise unknown(quantization, QUANTIZATIONS, kind="quantization", where=WHERE)
    if find_spec("ctranslate2") is None:
        raise SettingError(
            "The package ctranslate2 is not installed", where=WHERE, advice="Run pip install 'regard[ctranslate2]'."
        )
    with atomic_folder(folder, WHERE) as draft:
        return _write(run, draft, _build_verification(Run.open(run)), quantization)


def _build_verification(run: Run) -> Verification:
    from regard.exports.ctranslate2 import ctranslate2_verify as verify, vocabulary

    recipe = load_recipe(run)
    run.expect_unpruned(WHERE)
    found = adapter(run, require_attention=False)
    model, source, target = found.model, found.tokenizers[0], found.tokenizers[-1]
    if isinstance(recipe, LanguageRecipe) and isinstance(model, GPT):
        prompts = verify.language_model_prompts(recipe, model, source, run.path)
        return verify.VerifyLanguageModel(model, vocabulary.language_model_vocabularies(source), prompts)
    if isinstance(recipe, TranslationRecipe) and isinstance(model, Transformer):
        prompts = verify.translation_prompts(recipe, source, target)
        return verify.VerifyTranslator(model, vocabulary.translator_vocabularies(source, target), prompts)
    raise RunError(
        f"{run.path}, whose model is of type {type(model).__name__}",
        "a run of a GPT (task 'language') or of a Transformer (task 'translation')",
        where=WHERE,
    )


def _write(run: Path, folder: Path, verification: Verification, quantization: str) -> ExportCheck:
    from regard.exports.ctranslate2.models import model_spec

    spec = model_spec(verification.model, verification.vocabularies)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    for name in (TOKENIZER, TARGET_TOKENIZER):
        if (run / name).exists():
            shutil.copyfile(run / name, folder / name)
    return verification.run(folder, quantization)
