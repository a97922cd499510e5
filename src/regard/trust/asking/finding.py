"""Which questions a model can be asked, and by which tokenizer it reads them."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from regard.errors import SettingError
from regard.hub.convert import load
from regard.hub.provenance import run_of
from regard.inspection.subjects import continuing, reading, subject, theirs, translating
from regard.models.bert import MaskedLM
from regard.models.heads import OnText
from regard.models.pooling import PoolingClassifier
from regard.text.corpora.labels import Labels
from regard.trust.asking.case import Asker
from regard.trust.asking.continuing import Continuing
from regard.trust.asking.texts import Classifying, Filling
from regard.trust.asking.theirs import Theirs
from regard.trust.asking.translating import Translating


def asker(model: nn.Module | str | os.PathLike[str], tokenizer: Any = None) -> Asker:
    """A model, or the folder that it lies in, ready to be asked; in eval(), so that it says the same each time."""
    if not isinstance(model, nn.Module):
        model = load(model)
    model.eval()
    found = subject(model, tokenizer)
    if isinstance(found, theirs.Theirs):
        return Theirs(found.model, found.tokenizer, found.name)
    if isinstance(found, translating.Translating):
        return Translating(found.translator, found.name)
    if isinstance(found, continuing.Continuing):
        return Continuing(found.model, found.tokenizer, found.name)
    if isinstance(found, reading.Reading):
        if isinstance(found.model, MaskedLM):
            return Filling(found.model, found.tokenizer, found.name)
        if isinstance(found.model, OnText | PoolingClassifier):
            return Classifying(found.model, found.tokenizer, found.name, _labels(found.model))
    raise SettingError(
        f"a {type(model).__name__}, which decides nothing that can be asked for",
        "a model that says classes, hidden words, next words or translations",
        where="audit",
    )


def _labels(model: nn.Module) -> tuple[str, ...]:
    """The names of the classes of a run."""
    run = run_of(model)
    labels = None if run is None else run.labels
    return labels.names if isinstance(labels, Labels) else ()
