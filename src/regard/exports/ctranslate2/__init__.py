"""Runs for CTranslate2, which translates and generates quickly on a CPU: `export`.

export(Path("runs/transformer"), Path("theirs"), "int8")     # then: ctranslate2.Translator("theirs")

What was written is tried before anyone gets it: both programs go on with the same texts.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.adapters import adapter
from regard.errors import RunError, SettingError, unknown
from regard.exports.atomic_export import Checked, giving
from regard.models import GPT, Transformer
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.training import recorded
from regard.training.tasks import Language, Translation

if TYPE_CHECKING:
    from regard.exports.ctranslate2.ctranslate2_verify import Verification

__all__ = ["QUANTIZATIONS", "export"]

QUANTIZATIONS = ("int8", "int8_float32", "float16", "float32")
WHERE = "regard export --to ctranslate2"


@torch.no_grad()
def export(run: Path, folder: Path, quantization: str | None = None) -> Checked:
    """Write a run as CTranslate2 loads it, with its tokenizers, and say on how many texts the two agree.

    In float32, the default, they must agree on all of them, and in the probability of every token.
    """
    quantization = quantization or "float32"
    if quantization not in QUANTIZATIONS:
        raise unknown(quantization, QUANTIZATIONS, kind="quantization", where=WHERE)
    if find_spec("ctranslate2") is None:
        raise SettingError(
            "no ctranslate2", "the package ctranslate2", where=WHERE, advice="pip install 'regard[ctranslate2]'"
        )
    with giving(folder, WHERE) as rough:
        return _written(run, rough, _verification(Run.open(run)), quantization)


def _verification(run: Run) -> Verification:
    from regard.exports.ctranslate2 import ctranslate2_verify as verify, vocabulary

    recipe = recorded(run)
    run.expect_whole(WHERE)
    found = adapter(run, attends=False)
    model, source, target = found.model, found.tokenizers[0], found.tokenizers[-1]
    if isinstance(recipe, Language) and isinstance(model, GPT):
        prompts = verify.stretches(recipe, model, source, run.path)
        return verify.VerifyLanguageModel(model, vocabulary.of_one(source), prompts)
    if isinstance(recipe, Translation) and isinstance(model, Transformer):
        prompts = verify.pairs(recipe, source, target)
        return verify.VerifyTranslator(model, vocabulary.of_two(source, target), prompts)
    raise RunError(
        f"{run.path}, whose model is a {type(model).__name__}",
        "a run of a GPT (task 'language') or of a Transformer (task 'translation')",
        where=WHERE,
    )


def _written(run: Path, folder: Path, verification: Verification, quantization: str) -> Checked:
    from regard.exports.ctranslate2.models import specification

    spec = specification(verification.model, verification.words)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    for name in (TOKENIZER, TARGET_TOKENIZER):
        if (run / name).exists():
            shutil.copyfile(run / name, folder / name)
    return verification.run(folder, quantization)
