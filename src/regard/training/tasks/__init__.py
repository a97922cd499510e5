"""The tasks a recipe can be for, by name; each is a Recipe with sections of its own."""

from regard.training.recipe import Recipe, Section
from regard.training.tasks.answering import Answering, Table as QuestionTable
from regard.training.tasks.classification import BuiltInLabelled, Classification, Table as LabelledTable
from regard.training.tasks.contextual import Contextual
from regard.training.tasks.finetune import READER, READER_RECIPE
from regard.training.tasks.language import BuiltInText, Language, TextFile as LanguageText
from regard.training.tasks.masked import Masked, TextFile as MaskedText
from regard.training.tasks.tagging import Conll, Tagging
from regard.training.tasks.tokenizers import File
from regard.training.tasks.translation import Translation
from regard.training.tasks.translation.data import BuiltInPairs, Table as PairTable

__all__ = [
    "FILE_SECTIONS",
    "READER",
    "READER_RECIPE",
    "TASKS",
    "Answering",
    "BuiltInLabelled",
    "BuiltInPairs",
    "BuiltInText",
    "Classification",
    "Contextual",
    "File",
    "Language",
    "Masked",
    "Tagging",
    "Translation",
]

TASKS: dict[str, type[Recipe]] = {
    "classification": Classification,
    "language": Language,
    "translation": Translation,
    "contextual": Contextual,
    "tagging": Tagging,
    "masked": Masked,
    "answering": Answering,
}

FILE_SECTIONS: dict[str, type[Section]] = {
    "translation": PairTable,
    "classification": LabelledTable,
    "language": LanguageText,
    "masked": MaskedText,
    "tagging": Conll,
    "answering": QuestionTable,
}
"""By task, the [data] of a recipe that reads one file."""
