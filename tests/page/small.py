"""Adapters of small untrained models with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, MaskedLMAdapter
from regard.adapters.translator import TranslatorAdapter
from regard.decoding.translate import Translator
from regard.models.bert import Bert, BertSize as BertSize, MaskedLM
from regard.models.bert_heads import BertFeatures as States, SequenceClassifier
from regard.models.gpt import GPT
from regard.models.transformer import TransformerSize, build_transformer
from regard.text import Tokenizer
from regard.text.corpora.labels import Labels
from regard.text.tokenizers.trainers import WordLevel

TEXT = "the black cat sleeps on the old chair ."
TOKENIZER = Tokenizer.train(WordLevel(40), [TEXT, "a dog <b>hit</b> me"])


def loud(make: Callable[[], torch.nn.Module], seed: int = 3) -> torch.nn.Module:
    """A model with fixed weights that are large enough to make a difference."""
    torch.manual_seed(seed)
    model = make()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.5)
    return model.eval()


def bert() -> Bert:
    return Bert.of(len(TOKENIZER), BertSize(2, 16, 4), max_positions=40)


def translating() -> TranslatorAdapter:
    model = loud(lambda: build_transformer(len(TOKENIZER), TransformerSize(2, 16, 4, 24)))
    return TranslatorAdapter(Translator(model, TOKENIZER, TOKENIZER), "translator", "never taught")  # type: ignore[arg-type]


def classifying() -> ClassifierAdapter:
    model = loud(lambda: SequenceClassifier(States(bert(), pooler=True), 2))
    return ClassifierAdapter(model, TOKENIZER, "classifier", "never taught", Labels(("bad", "good")))


def filling() -> MaskedLMAdapter:
    model = loud(lambda: MaskedLM(bert()))
    return MaskedLMAdapter(model, TOKENIZER, "filler", "never taught")


def continuing(writes: int = 0, seed: int = 0) -> CausalLMAdapter:
    """A language model that does not generate </s> at once."""
    model = loud(lambda: GPT(len(TOKENIZER), 16, 2, 4, 60), seed)
    return CausalLMAdapter(model, TOKENIZER, "writer", "never taught", writes)
