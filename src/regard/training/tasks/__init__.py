"""The tasks a recipe can be for, by name; each is a Recipe with sections of its own."""

from regard.training.recipe import Recipe
from regard.training.tasks.answering import Answering
from regard.training.tasks.classification import Classification
from regard.training.tasks.contextual import Contextual
from regard.training.tasks.language import Language
from regard.training.tasks.masked import Masked
from regard.training.tasks.tagging import Tagging
from regard.training.tasks.translation import Translation

TASKS: dict[str, type[Recipe]] = {
    "classification": Classification,
    "language": Language,
    "translation": Translation,
    "contextual": Contextual,
    "tagging": Tagging,
    "masked": Masked,
    "answering": Answering,
}
