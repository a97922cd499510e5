"""One object that puts text to a model: `adapter(model_or_folder)`, whatever family it is of."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.adapters.base import (
        CANDIDATES as CANDIDATES,
        Kind as Kind,
        ModelAdapter as ModelAdapter,
        Output as Output,
        Predicted as Predicted,
    )
    from regard.adapters.bert_inputs import padded as padded
    from regard.adapters.borrow import borrowed as borrowed
    from regard.adapters.case import Case as Case, Example as Example, Row as Row
    from regard.adapters.encoder import (
        ClassifierAdapter as ClassifierAdapter,
        EncoderAdapter as EncoderAdapter,
        MaskedLMAdapter as MaskedLMAdapter,
    )
    from regard.adapters.factory import adapter as adapter, run_adapter as run_adapter
    from regard.adapters.tokens import NO_WORD as NO_WORD, NOWHERE as NOWHERE, TokenRow as TokenRow
    from regard.adapters.translator import TranslatorAdapter as TranslatorAdapter

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "base": ("CANDIDATES", "Kind", "ModelAdapter", "Output", "Predicted"),
        "bert_inputs": ("padded",),
        "borrow": ("borrowed",),
        "case": ("Case", "Example", "Row"),
        "encoder": ("ClassifierAdapter", "EncoderAdapter", "MaskedLMAdapter"),
        "factory": ("adapter", "run_adapter"),
        "tokens": ("NOWHERE", "NO_WORD", "TokenRow"),
        "translator": ("TranslatorAdapter",),
    },
)
