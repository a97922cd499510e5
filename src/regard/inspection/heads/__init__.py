"""Which heads a model needs: switch them off one by one, weigh them by gradients, and cut out the rest."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.inspection.heads.pruning import By as By, Pruned as Pruned, prune as prune

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "pruning": ("By", "Pruned", "prune"),
    },
)
