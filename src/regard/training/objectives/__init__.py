"""Training objectives: `base` defines what an objective is, each other module has that of one task."""
