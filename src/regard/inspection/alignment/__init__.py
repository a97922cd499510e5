"""Word alignment from cross-attention: extraction, symmetrisation of both directions, alignment error rate (AER)."""
