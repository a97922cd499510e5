"""The tasks a recipe can be for, by name; each is a Recipe with sections of its own."""

from regard.training.recipe import Recipe
from regard.training.tasks.classification import Classification
from regard.training.tasks.language import Language

TASKS: dict[str, type[Recipe]] = {"classification": Classification, "language": Language}
