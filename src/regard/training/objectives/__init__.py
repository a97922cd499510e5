"""What models are trained for: base says what an objective is; one module a task."""
