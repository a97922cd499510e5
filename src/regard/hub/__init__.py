"""Hugging Face checkpoints: `load` and `save` for models, `import_checkpoint` and `export_checkpoint` for runs;
`enable` lets transformers' own models attend through regard."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.hub.attention_interface import NAME as NAME, enable as enable, uses_interface as uses_interface
    from regard.hub.convert import (
        export_checkpoint as export_checkpoint,
        import_checkpoint as import_checkpoint,
        load as load,
        save as save,
    )
    from regard.hub.families.family import first_block as first_block
    from regard.hub.provenance import origin as origin, run_of as run_of

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "attention_interface": ("NAME", "enable", "uses_interface"),
        "convert": ("export_checkpoint", "import_checkpoint", "load", "save"),
        "families.family": ("first_block",),
        "provenance": ("origin", "run_of"),
    },
)
