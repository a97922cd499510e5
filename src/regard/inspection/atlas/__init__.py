"""The head atlas: what every head of a model looks at, named by patterns that can be checked."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.inspection.atlas.built_in_examples import SPLIT as SPLIT, built_in as built_in
    from regard.inspection.atlas.examples import (
        BUILT_IN as BUILT_IN,
        Passage as Passage,
        expect_built_in as expect_built_in,
        read_passages as read_passages,
    )
    from regard.inspection.atlas.export import LEGEND as LEGEND, expect_writable as expect_writable
    from regard.inspection.atlas.head_atlas import (
        PROBES as PROBES,
        Atlas as Atlas,
        atlas as atlas,
        passages_for as passages_for,
    )
    from regard.inspection.atlas.label_heads import UNKNOWN as UNKNOWN, Head as Head

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "built_in_examples": ("SPLIT", "built_in"),
        "examples": ("BUILT_IN", "Passage", "expect_built_in", "read_passages"),
        "export": ("LEGEND", "expect_writable"),
        "head_atlas": ("Atlas", "PROBES", "atlas", "passages_for"),
        "label_heads": ("Head", "UNKNOWN"),
    },
)
