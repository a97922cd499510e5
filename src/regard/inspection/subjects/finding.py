"""Which kind of subject a model is, and where its tokenizer is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from regard.decoding.translate import Translator
from regard.errors import PlaceError, SettingError
from regard.hub.convert import load
from regard.hub.provenance import origin, run_of
from regard.inspection.subjects.continuing import Continuing
from regard.inspection.subjects.foreign import Foreign
from regard.inspection.subjects.reading import Reading
from regard.inspection.subjects.subject import Subject
from regard.inspection.subjects.theirs import Theirs, their_tokenizer
from regard.inspection.subjects.translating import Translating
from regard.models.bert import Bert
from regard.models.pooling import PoolingClassifier
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.runs.build import TOKENIZER
from regard.runs.run import Run
from regard.text.tokenizers.tokenizer import Tokenizer


def subject(model: nn.Module | str | os.PathLike[str], tokenizer: Any = None, writes: int = 0) -> Subject:
    """A model, or the folder that it lies in, ready for text.

    `tokenizer`: ours, transformers', or for a translator a pair of ours; found by itself where the model was loaded
    from a folder that has one. `writes`: how many tokens a language model adds to a text.
    """
    if not isinstance(model, nn.Module):
        model = load(model)
    folder, run = origin(model), run_of(model)
    if hasattr(model, "config") and hasattr(model.config, "model_type"):
        return Theirs(model, their_tokenizer(model, tokenizer, folder), _name(model, folder), writes=writes)
    found = _kept(folder, run) if tokenizer is None else tokenizer
    name = _name(model, folder)
    about = "" if run is None else run.description
    if isinstance(model, Seq2Seq | Transformer):
        source, target = found if isinstance(found, tuple | list) else (found, found)
        return Translating(Translator(model, _ours(source), _ours(target)), name, about)
    if isinstance(model, PoolingClassifier) or any(isinstance(one, Bert) for one in model.modules()):
        return Reading(model, _ours(found), name, about, None if run is None else run.labels)
    if hasattr(model, "start") and hasattr(model, "step"):
        return Continuing(model, _ours(found), name, about, writes)
    if type(model).__module__.startswith("regard."):
        raise PlaceError(f"a {type(model).__name__}, which attends nowhere", "a model with attention", where="look")
    return Foreign(model, found, name)


def _kept(folder: Path | None, run: Run | None) -> Tokenizer | tuple[Tokenizer, Tokenizer] | None:
    """The tokenizers of a run, or the one that lies in a folder."""
    if run is not None:
        return (run.tokenizer, run.target_tokenizer) if run.task == "translation" else run.tokenizer
    there = folder is not None and (folder / TOKENIZER).exists()
    return Tokenizer.load(folder / TOKENIZER) if folder is not None and there else None


def _ours(tokenizer: Any) -> Tokenizer:
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    raise SettingError(
        "no tokenizer" if tokenizer is None else f"a tokenizer of type {type(tokenizer).__name__}",
        "a regard.text.Tokenizer",
        where="look",
        advice="Name a folder that holds a tokenizer.json, or in Python pass tokenizer=.",
    )


def _name(model: nn.Module, folder: Path | None) -> str:
    return type(model).__name__ if folder is None else folder.resolve().name
