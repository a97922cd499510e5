"""Chooses the adapter of a model or folder, and finds its tokenizer and labels.

Only this module knows every family. A new family is a subclass of ModelAdapter and one line in `_regard_adapter` or
`_transformers_adapter`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from regard.adapters.base import ModelAdapter
from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, ELMoAdapter, EncoderAdapter, MaskedLMAdapter
from regard.adapters.hub_tokenizer import as_its_tokenizer, load_hub_tokenizer
from regard.adapters.image_models import (
    CaptionerAdapter,
    ImageClassifierAdapter,
    ImageModelAdapter,
    PhrasePointerAdapter,
)
from regard.adapters.torch_module import TorchAdapter
from regard.adapters.transformers_model import (
    TransformersAdapter,
    TransformersCausalLM,
    TransformersClassifier,
    TransformersMaskedLM,
)
from regard.adapters.transformers_seq2seq import (
    TransformersSeq2Seq,
    TransformersSeq2SeqClassifier,
    TransformersTwoStacks,
)
from regard.adapters.translator import TranslatorAdapter
from regard.decoding import Translator
from regard.errors import PlaceError, SettingError
from regard.hub import has_transformers, load, load_own, origin, run_of
from regard.models import (
    Bert,
    ELMo,
    ImageClassifier,
    MaskedLM,
    PhrasePointer,
    PoolingClassifier,
    RecurrentCaptioner,
    Seq2Seq,
    SequenceClassifier,
    Tagger,
    Transformer,
    TransformerCaptioner,
)
from regard.runs import TOKENIZER, Run, is_run
from regard.text import Labels, Scale, Tokenizer

A = TypeVar("A", bound=ModelAdapter)


def adapter(
    model: nn.Module | str | os.PathLike[str],
    tokenizer: Any = None,
    max_new_tokens: int = 0,
    require_attention: bool = True,
) -> ModelAdapter:
    """The adapter of a model, of its folder, or of a run.

    `tokenizer`: of ours, of transformers, or for a translator a pair of ours; a model that was loaded from a folder has
    the one in that folder. `max_new_tokens`: how many tokens a language model generates after a text.
    `require_attention`: refuse a model without attention.
    """
    module = model if isinstance(model, nn.Module) else _load(model, tokenizer)
    source = _Source(module, origin(module), run_of(module))
    if hasattr(module, "config") and hasattr(module.config, "model_type"):
        own = _transformers_tokenizer(module, origin(module)) if tokenizer is None else tokenizer
        return _transformers_adapter(module)(module, own, source.name, max_new_tokens=max_new_tokens)
    given = source.tokenizers if tokenizer is None else tokenizer
    pair = tuple(given) if isinstance(given, tuple | list) else (given,)
    found = _regard_adapter(module, pair, source, max_new_tokens)
    if tokenizer is None and source.folder is not None and source.run is None and pair:
        found = as_its_tokenizer(found, source.folder)
    if require_attention and not found.has_attention:
        raise _no_attention(module)
    return found


def _load(folder: str | os.PathLike[str], tokenizer: Any) -> nn.Module:
    """The model of a run; of a Hugging Face folder transformers' own, which its tokenizer fits for certain. A model of
    ours for a tokenizer of ours, and where there is no transformers."""
    own = isinstance(tokenizer, Tokenizer) or is_run(folder) or not has_transformers()
    return load(folder) if own else load_own(Path(folder))


def run_adapter(run: str | os.PathLike[str], kind: type[A], *tasks: str) -> A:
    """The adapter of a run, which must be of one of these tasks and have an adapter of this class."""
    opened = Run.open(run)
    opened.expect_task(*tasks)
    found = adapter(opened, require_attention=False)
    assert isinstance(found, kind), f"a run of task {tasks} whose adapter is a {type(found).__name__}"
    return found


def _regard_adapter(model: Any, tokenizers: tuple[Any, ...], source: _Source, max_new_tokens: int) -> ModelAdapter:
    """The adapter of a model that is not from transformers."""
    name, about = source.name, source.description
    first, last = (tokenizers[0], tokenizers[-1]) if tokenizers else (None, None)
    if (images := _image_adapter(model, first, source)) is not None:
        return images
    if isinstance(model, Seq2Seq | Transformer):
        return TranslatorAdapter(Translator(model, _expect_tokenizer(first), _expect_tokenizer(last)), name, about)
    if isinstance(model, SequenceClassifier | PoolingClassifier):
        return ClassifierAdapter(model, _expect_tokenizer(first), name, about, source.labels)
    if isinstance(model, MaskedLM):
        return MaskedLMAdapter(model, _expect_tokenizer(first), name, about)
    if isinstance(model, ELMo | Tagger):
        return ELMoAdapter(model, _expect_tokenizer(first), name, about)
    if any(isinstance(one, Bert) for one in model.modules()):
        return EncoderAdapter(model, _expect_tokenizer(first), name, about)
    if hasattr(model, "start") and hasattr(model, "step"):
        return CausalLMAdapter(model, _expect_tokenizer(first), name, about, max_new_tokens)
    if type(model).__module__.startswith("regard."):
        raise _no_attention(model)
    return TorchAdapter(model, first, name)


def _image_adapter(model: Any, tokenizer: Any, source: _Source) -> ImageModelAdapter | None:
    """The adapter of a model of ours that looks at pictures."""
    name, about = source.name, source.description
    fit: Any = "crop" if source.run is None else source.run.section("data").get("fit", "crop")
    if isinstance(model, ImageClassifier):
        return ImageClassifierAdapter(model, None, name, about, fit, source.labels)  # type: ignore[arg-type]
    if isinstance(model, RecurrentCaptioner | TransformerCaptioner):
        return CaptionerAdapter(model, _expect_tokenizer(tokenizer), name, about, fit)
    if isinstance(model, PhrasePointer):
        return PhrasePointerAdapter(model, _expect_tokenizer(tokenizer), name, about, fit)
    return None


def _transformers_adapter(model: Any) -> type[TransformersAdapter]:
    """The adapter class of a transformers model, by its head."""
    has_words = model.get_output_embeddings() is not None
    both = "decoder_input_ids" in inspect.signature(model.forward).parameters
    if type(model).__name__.endswith("ForSequenceClassification"):
        return TransformersSeq2SeqClassifier if both else TransformersClassifier
    if both:
        return TransformersSeq2Seq if has_words else TransformersTwoStacks
    if not has_words:
        return TransformersAdapter
    return TransformersCausalLM if model.can_generate() else TransformersMaskedLM


def _no_attention(model: nn.Module) -> PlaceError:
    return PlaceError(f"A {type(model).__name__} has no attention to look at", where="look")


def _expect_tokenizer(tokenizer: Any) -> Tokenizer:
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    advice = "Name a folder with a tokenizer.json, or pass tokenizer= in Python."
    if tokenizer is None:
        raise SettingError("This model has no tokenizer", where="look", advice=advice)
    came = f"a tokenizer of type {type(tokenizer).__name__}"
    raise SettingError(came, "a regard.text.Tokenizer", where="look", advice=advice)


def _transformers_tokenizer(model: nn.Module, folder: Path | None) -> Any:
    """The tokenizer in the folder of a transformers model; None where there is none."""
    config: Any = model.config
    where = folder or Path(getattr(config, "_name_or_path", "") or "nowhere")
    return load_hub_tokenizer(where)


@dataclass(frozen=True, eq=False)
class _Source:
    """A model, and the folder or run that it was loaded from, if any."""

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
        """The tokenizer, or those of the source and of the target; empty where there are none."""
        if self.run is not None:
            return self.run.tokenizers
        if self.folder is None or not (self.folder / TOKENIZER).exists():
            return ()
        return (Tokenizer.load(self.folder / TOKENIZER),)
