"""Which adapter a model gets, and where its tokenizer and labels are found: the only place that knows all families.

A new family is a subclass of ModelAdapter and one line in `_ours` or `_of_transformers`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
from regard.decoding import Translator
from regard.errors import PlaceError, SettingError
from regard.hub import load, origin, run_of
from regard.models import Bert, ELMo, MaskedLM, OnText, PoolingClassifier, Seq2Seq, Tagger, Transformer
from regard.runs import TOKENIZER, Run
from regard.text import Labels, Scale, Tokenizer

A = TypeVar("A", bound=ModelAdapter)


def adapter(
    model: nn.Module | str | os.PathLike[str], tokenizer: Any = None, writes: int = 0, attends: bool = True
) -> ModelAdapter:
    """The adapter of a model, of the folder that it lies in, or of a run.

    `tokenizer`: ours, transformers', or for a translator a pair of ours; found by itself where the model was loaded
    from a folder that has one. `writes`: how many tokens a language model adds to a text. `attends`: a model without
    attention is refused.
    """
    module = model if isinstance(model, nn.Module) else load(model)
    source = _Source(module, origin(module), run_of(module))
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
    opened = Run.open(run)
    opened.expect_task(*tasks)
    found = adapter(opened, attends=False)
    assert isinstance(found, kind), f"a run of task {tasks} whose adapter is a {type(found).__name__}"
    return found


def _ours(model: Any, tokenizers: tuple[Any, ...], source: _Source, writes: int) -> ModelAdapter:
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


@dataclass(frozen=True, eq=False)
class _Source:
    """A model with what lies in the folder that it was loaded from, if it was."""

    module: nn.Module
    folder: Path | None
    run: Run | None

    @property
    def name(self) -> str:
        return type(self.module).__name__ if self.folder is None else self.folder.resolve().name

    @property
    def description(self) -> str:
        return "" if self.run is None else self.run.description

    @property
    def labels(self) -> Labels | Scale | None:
        return None if self.run is None else self.run.labels

    @property
    def tokenizers(self) -> Sequence[Tokenizer]:
        """One, or that of the source and that of the target; none where there are none."""
        if self.run is not None:
            return self.run.tokenizers
        if self.folder is None or not (self.folder / TOKENIZER).exists():
            return ()
        return (Tokenizer.load(self.folder / TOKENIZER),)
