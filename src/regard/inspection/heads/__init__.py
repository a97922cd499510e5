"""Which heads a model needs: switch them off one by one, weigh them by gradients, and cut out the rest."""

from regard.inspection.heads.ablation import ablate
from regard.inspection.heads.evaluation import Examined
from regard.inspection.heads.importance import importance
from regard.inspection.heads.pruning import By, Pruned, prune

__all__ = ["By", "Examined", "Pruned", "ablate", "importance", "prune"]
