"""Head importance (Michel et al. 2019), head ablation and head pruning: which heads a model needs."""

from regard.inspection.heads.ablation import ablate
from regard.inspection.heads.importance import importance
from regard.inspection.heads.pruning import Criterion, Pruned, prune
from regard.inspection.heads.run_evaluation import RunEvaluation

__all__ = ["Criterion", "Pruned", "RunEvaluation", "ablate", "importance", "prune"]
