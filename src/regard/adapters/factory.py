"""Which adapter a model gets, and where its tokenizer and labels are found: the only place that knows all families.

A new family is a subclass of ModelAdapter and one line in `_ours` or `_of_transformers`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import nn

from regard.adapters.base import ModelAdapter
from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, ELMoAdapter, EncoderAdapter, MaskedLMAdapter
from regard.adapters.torch_module import TorchAdapter
from regard.adapters.transformers_model import (
    TransformersAdapter,
    TransformersCausalLM,
    TransformersClassifier,
    TransformersMaskedLM,
    TransformersSeq2Seq,
)
from regard.adapters.translator import TranslatorAdapter
from regard.decoding.translate import Translator
from regard.errors import PlaceError, SettingError
from regard.hub.exchange import load
from regard.hub.origins import origin
from regard.models.bert import Bert, MaskedLM
from regard.models.elmo import ELMo, Tagger
from regard.models.heads import OnText
from regard.models.pooling import PoolingClassifier
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.text.corpora.labels import Labels, Scale
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.recipe import Recipe
from regard.training.run import RECIPE, recorded
from regard.training.tasks import TASKS
from regard.training.tasks.classification import Classification, outputs_of
from regard.training.tasks.tokenizers import FILE, kept_tokenizer
from regard.training.tasks.translation import Translation
from regard.training.use import for_task

A = TypeVar("A", bound=ModelAdapter)


class Source(Protocol):
    """What an adapter is made from: a model with what lies beside it."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def tokenizers(self) -> Sequence[Tokenizer]:
        """One, or that of the source and that of the target; none where there are none."""

    @property
    def labels(self) -> Labels | Scale | None: ...

    def model(self) -> nn.Module: ...


def adapter(
    model: nn.Module | str | os.PathLike[str] | Source, tokenizer: Any = None, writes: int = 0, attends: bool = True
) -> ModelAdapter:
    """The adapter of a model, of the folder that it lies in, or of a run.

    `tokenizer`: ours, transformers', or for a translator a pair of ours; found by itself where the model was loaded
    from a folder that has one. `writes`: how many tokens a language model adds to a text. `attends`: a model without
    attention is refused.
    """
    source = _source(model)
    module = source.model()
    if hasattr(module, "config") and hasattr(module.config, "model_type"):
        own = _transformers_tokenizer(module, origin(module)) if tokenizer is None else tokenizer
        return _of_transformers(module)(module, own, source.name, writes=writes)
    given = source.tokenizers if tokenizer is None else tokenizer
    pair = tuple(given) if isinstance(given, tuple | list) else (given,)
    found = _ours(module, pair, source, writes)
    if attends and not found.attends:
        raise PlaceError(f"a {type(module).__name__}, which attends nowhere", "a model with attention", where="look")
    return found


def run_adapter(run: str | os.PathLike[str], kind: type[A], *tasks: str) -> A:
    """The adapter of a run, which must be for one of these tasks and of this kind."""
    for_task(Path(run), *(TASKS[name] for name in tasks))
    found = adapter(run, attends=False)
    assert isinstance(found, kind), f"a run of task {tasks} whose adapter is a {type(found).__name__}"
    return found


def _ours(model: Any, tokenizers: tuple[Any, ...], source: Source, writes: int) -> ModelAdapter:
    """The adapter of a model that is none of transformers'."""
    name, about = source.name, source.description
    first, last = (tokenizers[0], tokenizers[-1]) if tokenizers else (None, None)
    if isinstance(model, Seq2Seq | Transformer):
        return TranslatorAdapter(Translator(model, _expected(first), _expected(last)), name, about)
    if isinstance(model, OnText | PoolingClassifier):
        return ClassifierAdapter(model, _expected(first), name, about, source.labels)
    if isinstance(model, MaskedLM):
        return MaskedLMAdapter(model, _expected(first), name, about)
    if isinstance(model, ELMo | Tagger):
        return ELMoAdapter(model, _expected(first), name, about)
    if any(isinstance(one, Bert) for one in model.modules()):
        return EncoderAdapter(model, _expected(first), name, about)
    if hasattr(model, "start") and hasattr(model, "step"):
        return CausalLMAdapter(model, _expected(first), name, about, writes)
    if type(model).__module__.startswith("regard."):
        raise PlaceError(f"a {type(model).__name__}, which attends nowhere", "a model with attention", where="look")
    return TorchAdapter(model, first, name)


def _of_transformers(model: Any) -> type[TransformersAdapter]:
    """By what its head says."""
    says, both = model.get_output_embeddings() is not None, model.config.is_encoder_decoder
    classifies = type(model).__name__.endswith("ForSequenceClassification") and model.config.num_labels > 1
    if classifies and not (both and says):
        return TransformersClassifier
    if both:
        return TransformersSeq2Seq
    if not says:
        return TransformersAdapter
    return TransformersCausalLM if model.can_generate() else TransformersMaskedLM


def _expected(tokenizer: Any) -> Tokenizer:
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    raise SettingError(
        "no tokenizer" if tokenizer is None else f"a tokenizer of type {type(tokenizer).__name__}",
        "a regard.text.Tokenizer",
        where="look",
        advice="Name a folder that holds a tokenizer.json, or in Python pass tokenizer=.",
    )


def _transformers_tokenizer(model: nn.Module, folder: Path | None) -> Any:
    """The tokenizer that lies in the folder of a transformers model; None where there is none."""
    config: Any = model.config
    where = folder or Path(getattr(config, "_name_or_path", "") or "nowhere")
    if not (where / "tokenizer_config.json").exists() and not (where / "tokenizer.json").exists():
        return None
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(where, local_files_only=True)


def _source(given: nn.Module | str | os.PathLike[str] | Source) -> Source:
    if isinstance(given, nn.Module):
        return _Loaded(given)
    return _Loaded(load(given)) if isinstance(given, str | os.PathLike) else given


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A model with what lies in the folder that it was loaded from, if it was."""

    module: nn.Module
    folder: Path | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", origin(self.module))

    def model(self) -> nn.Module:
        return self.module

    @property
    def name(self) -> str:
        return type(self.module).__name__ if self.folder is None else self.folder.resolve().name

    @property
    def description(self) -> str:
        return "" if self._recipe is None else str(self._recipe.description)

    @property
    def labels(self) -> Labels | Scale | None:
        return outputs_of(self._recipe) if isinstance(self._recipe, Classification) else None

    @property
    def tokenizers(self) -> Sequence[Tokenizer]:
        if self.folder is None:
            return ()
        if self._recipe is None:
            return (Tokenizer.load(self.folder / FILE),) if (self.folder / FILE).exists() else ()
        if isinstance(self._recipe, Translation):
            return self._recipe.tokenizers(self.folder)
        return (kept_tokenizer(self._recipe.tokenizer, self.folder),)  # type: ignore[attr-defined]

    @cached_property
    def _recipe(self) -> Recipe | None:
        return None if self.folder is None or not (self.folder / RECIPE).exists() else recorded(self.folder)
