"""Exports of trained models to other programs: ONNX and CTranslate2."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.exports.atomic_export import ExportCheck as ExportCheck

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "atomic_export": ("ExportCheck",),
    },
)
