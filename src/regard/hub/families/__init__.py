"""The model families that can be imported and exported, by their model_type; one place that lists them all."""

from regard.hub.families.bart import BART, MARIAN
from regard.hub.families.bert import BERT
from regard.hub.families.distilbert import DISTILBERT
from regard.hub.families.family import Family
from regard.hub.families.gpt2 import GPT2
from regard.hub.families.llama import LLAMA, MISTRAL
from regard.hub.families.roberta import ROBERTA

ALL = (GPT2, LLAMA, MISTRAL, BERT, ROBERTA, DISTILBERT, BART, MARIAN)
FAMILIES: dict[str, Family] = {family.kind: family for family in ALL}
