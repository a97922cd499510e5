"""The head atlas: what every head of a model looks at, named by patterns that can be checked."""
