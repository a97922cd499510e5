"""Attention models: train them, use them, see and test what they attend to. Public names load on first use."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard import hub as hub, pictures as pictures, text as text, training as training
    from regard.attention import (
        Attended as Attended,
        Observe as Observe,
        Tap as Tap,
        attend as attend,
        biases as biases,
        capture as capture,
        choose as choose,
        layers as layers,
        masks as masks,
        normalise as normalise,
        positions as positions,
        scores as scores,
        windows as windows,
    )
    from regard.errors import RegardError as RegardError
    from regard.faithfulness.audit import audit as audit
    from regard.hub import load as load
    from regard.inspection import align as align, intervene as intervene
    from regard.inspection.atlas import atlas as atlas
    from regard.page import look as look

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "": ("hub", "pictures", "text", "training"),
        "attention": (
            "Attended",
            "Observe",
            "Tap",
            "attend",
            "biases",
            "capture",
            "choose",
            "layers",
            "masks",
            "normalise",
            "positions",
            "scores",
            "windows",
        ),
        "errors": ("RegardError",),
        "faithfulness": ("audit",),
        "hub": ("load",),
        "inspection": ("align", "intervene"),
        "inspection.atlas": ("atlas",),
        "page": ("look",),
    },
)
__all__ += ["__version__"]
