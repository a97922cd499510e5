"""The tasks of recipes by name; each is a Recipe class with sections of its own."""

from regard.training.recipe import Recipe
from regard.training.section import RecipeSection
from regard.training.tasks.captioning import CaptioningRecipe
from regard.training.tasks.classification import BuiltInLabelled, ClassificationRecipe, LabelTable
from regard.training.tasks.contextual import ContextualRecipe
from regard.training.tasks.finetune import PRETRAINED, PRETRAINED_RECIPE
from regard.training.tasks.image_classification import ImageClassificationRecipe
from regard.training.tasks.language import BuiltInText, LanguageRecipe, RawTextFile
from regard.training.tasks.masked_lm import DocumentFile, MaskedLMRecipe
from regard.training.tasks.pointing import PointingRecipe
from regard.training.tasks.question_answering import AnsweringRecipe, QuestionTable
from regard.training.tasks.tagging import ConllFile, TaggingRecipe
from regard.training.tasks.tokenizers import TokenizerFile
from regard.training.tasks.translation import TranslationRecipe
from regard.training.tasks.translation.data import BuiltInPairs, PairTable

__all__ = [
    "FILE_SECTIONS",
    "PRETRAINED",
    "PRETRAINED_RECIPE",
    "TASKS",
    "AnsweringRecipe",
    "BuiltInLabelled",
    "BuiltInPairs",
    "BuiltInText",
    "CaptioningRecipe",
    "ClassificationRecipe",
    "ContextualRecipe",
    "ImageClassificationRecipe",
    "TokenizerFile",
    "LanguageRecipe",
    "MaskedLMRecipe",
    "PointingRecipe",
    "TaggingRecipe",
    "TranslationRecipe",
]

TASKS: dict[str, type[Recipe]] = {
    "classification": ClassificationRecipe,
    "language": LanguageRecipe,
    "translation": TranslationRecipe,
    "contextual": ContextualRecipe,
    "tagging": TaggingRecipe,
    "masked": MaskedLMRecipe,
    "answering": AnsweringRecipe,
    "captioning": CaptioningRecipe,
    "image-classification": ImageClassificationRecipe,
    "pointing": PointingRecipe,
}

FILE_SECTIONS: dict[str, type[RecipeSection]] = {
    "translation": PairTable,
    "classification": LabelTable,
    "language": RawTextFile,
    "masked": DocumentFile,
    "tagging": ConllFile,
    "answering": QuestionTable,
}
"""By task, the [data] section that reads one file."""
