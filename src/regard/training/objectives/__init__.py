"""Training objectives: `base` defines the interface, and each other module implements one task."""
