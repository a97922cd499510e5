"""Which kind of subject a model is, and where its tokenizer is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from regard.decoding.translate import Translator
from regard.errors import PlaceError, SettingError
from regard.hub.exchange import load
from regard.hub.origins import origin
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
from regard.text.corpora.labels import Labels, Scale
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.run import RECIPE, recorded
from regard.training.tasks.classification import Classification, outputs_of
from regard.training.tasks.tokenizers import FILE, kept_tokenizer
from regard.training.tasks.translation import Translation


def subject(model: nn.Module | str | os.PathLike[str], tokenizer: Any = None, writes: int = 0) -> Subject:
    """A model, or the folder that it lies in, ready for text.

    `tokenizer`: ours, transformers', or for a translator a pair of ours; found by itself where the model was loaded
    from a folder that has one. `writes`: how many tokens a language model adds to a text.
    """
    if not isinstance(model, nn.Module):
        model = load(model)
    folder = origin(model)
    if hasattr(model, "config") and hasattr(model.config, "model_type"):
        return Theirs(model, their_tokenizer(model, tokenizer, folder), _name(model, folder), writes=writes)
    found = _kept(folder) if tokenizer is None else tokenizer
    name = _name(model, folder)
    about = "" if folder is None else _described(folder)
    if isinstance(model, Seq2Seq | Transformer):
        source, target = found if isinstance(found, tuple | list) else (found, found)
        return Translating(Translator(model, _ours(source), _ours(target)), name, about)
    if isinstance(model, PoolingClassifier) or any(isinstance(one, Bert) for one in model.modules()):
        return Reading(model, _ours(found), name, about, None if folder is None else _labels(folder))
    if hasattr(model, "start") and hasattr(model, "step"):
        return Continuing(model, _ours(found), name, about, writes)
    if type(model).__module__.startswith("regard."):
        raise PlaceError(f"a {type(model).__name__}, which attends nowhere", "a model with attention", where="look")
    return Foreign(model, found, name)


def _kept(folder: Path | None) -> Tokenizer | tuple[Tokenizer, Tokenizer] | None:
    """The tokenizers of a run, or the one that lies in a folder."""
    if folder is None:
        return None
    if not (folder / RECIPE).exists():
        return Tokenizer.load(folder / FILE) if (folder / FILE).exists() else None
    recipe = recorded(folder)
    if isinstance(recipe, Translation):
        return recipe.tokenizers(folder)
    return kept_tokenizer(recipe.tokenizer, folder)  # type: ignore[attr-defined]


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


def _described(folder: Path) -> str:
    return str(recorded(folder).description) if (folder / RECIPE).exists() else ""


def _labels(folder: Path) -> Labels | Scale | None:
    """What a classifier's outputs stand for."""
    recipe = recorded(folder) if (folder / RECIPE).exists() else None
    return outputs_of(recipe) if isinstance(recipe, Classification) else None
