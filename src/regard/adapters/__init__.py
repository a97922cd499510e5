"""Model adapters: `adapter(model_or_folder)` is one interface to the models of every family."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.adapters.base import (
        CANDIDATES as CANDIDATES,
        ForwardPass as ForwardPass,
        Kind as Kind,
        ModelAdapter as ModelAdapter,
        ModelOutput as ModelOutput,
        Positions as Positions,
        PredictedTokens as PredictedTokens,
    )
    from regard.adapters.bert_inputs import pad_ids as pad_ids
    from regard.adapters.borrow import borrow_model as borrow_model
    from regard.adapters.case import Case as Case, Example as Example, InputRow as InputRow
    from regard.adapters.encoder import (
        ClassifierAdapter as ClassifierAdapter,
        EncoderAdapter as EncoderAdapter,
        MaskedLMAdapter as MaskedLMAdapter,
    )
    from regard.adapters.factory import adapter as adapter, run_adapter as run_adapter
    from regard.adapters.image_models import (
        CaptionerAdapter as CaptionerAdapter,
        ImageClassifierAdapter as ImageClassifierAdapter,
        PhrasePointerAdapter as PhrasePointerAdapter,
    )
    from regard.adapters.tensor_inputs import expect_row as expect_row
    from regard.adapters.token_row import NO_SPAN as NO_SPAN, NO_WORD as NO_WORD, TokenRow as TokenRow
    from regard.adapters.translator import TranslatorAdapter as TranslatorAdapter
    from regard.adapters.vision.images import given_images as given_images, is_image_path as is_image_path

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "base": ("CANDIDATES", "ForwardPass", "Kind", "ModelAdapter", "ModelOutput", "Positions", "PredictedTokens"),
        "bert_inputs": ("pad_ids",),
        "borrow": ("borrow_model",),
        "case": ("Case", "Example", "InputRow"),
        "encoder": ("ClassifierAdapter", "EncoderAdapter", "MaskedLMAdapter"),
        "factory": ("adapter", "run_adapter"),
        "image_models": ("CaptionerAdapter", "ImageClassifierAdapter", "PhrasePointerAdapter"),
        "tensor_inputs": ("expect_row",),
        "token_row": ("NO_SPAN", "NO_WORD", "TokenRow"),
        "translator": ("TranslatorAdapter",),
        "vision.images": ("given_images", "is_image_path"),
    },
)
