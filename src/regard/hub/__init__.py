"""Hugging Face checkpoints: `load` and `save` for models, `import_checkpoint` and `export_checkpoint` for runs;
`enable` lets transformers' own models attend through regard."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.hub.attention_interface import NAME as NAME, enable as enable, uses_interface as uses_interface
    from regard.hub.checkpoint_loader import load as load, load_own as load_own
    from regard.hub.convert import (
        export_checkpoint as export_checkpoint,
        import_checkpoint as import_checkpoint,
        save as save,
    )
    from regard.hub.families.family import first_block as first_block
    from regard.hub.folder import read_config as read_config
    from regard.hub.provenance import origin as origin, run_of as run_of
    from regard.hub.transformers_fallback import (
        quiet_transformers as quiet_transformers,
        reason_of as reason_of,
        refusals as refusals,
    )
    from regard.hub.transformers_version import has_transformers as has_transformers

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "attention_interface": ("NAME", "enable", "uses_interface"),
        "checkpoint_loader": ("load", "load_own"),
        "convert": ("export_checkpoint", "import_checkpoint", "save"),
        "families.family": ("first_block",),
        "folder": ("read_config",),
        "provenance": ("origin", "run_of"),
        "transformers_fallback": ("quiet_transformers", "reason_of", "refusals"),
        "transformers_version": ("has_transformers",),
    },
)
