"""The head atlas: what every head of a model attends to, labelled by testable patterns, such as induction heads."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.inspection.atlas.atlas_export import LEGEND as LEGEND, expect_writable as expect_writable
    from regard.inspection.atlas.built_in_examples import SPLIT as SPLIT, built_in_passages as built_in_passages
    from regard.inspection.atlas.head_atlas import (
        PROBES as PROBES,
        Atlas as Atlas,
        atlas as atlas,
        load_passages as load_passages,
    )
    from regard.inspection.atlas.label_criteria import UNKNOWN as UNKNOWN, Head as Head
    from regard.inspection.atlas.passages import (
        BUILT_IN as BUILT_IN,
        Passage as Passage,
        expect_built_in as expect_built_in,
        read_passages as read_passages,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "built_in_examples": ("SPLIT", "built_in_passages"),
        "passages": ("BUILT_IN", "Passage", "expect_built_in", "read_passages"),
        "atlas_export": ("LEGEND", "expect_writable"),
        "head_atlas": ("Atlas", "PROBES", "atlas", "load_passages"),
        "label_criteria": ("Head", "UNKNOWN"),
    },
)
