"""ADD A FAMILY HERE: the Hugging Face model families that regard imports and exports, by model_type.

A family is a file in this folder that defines a `Family` (family.py lists its fields; gpt2.py is a short example), and
an entry in ALL.
"""

from regard.hub.families.bart import BART, MARIAN
from regard.hub.families.bert import BERT
from regard.hub.families.distilbert import DISTILBERT
from regard.hub.families.family import Family
from regard.hub.families.gpt2 import GPT2
from regard.hub.families.llama import LLAMA, MISTRAL
from regard.hub.families.roberta import ROBERTA

ALL = (GPT2, LLAMA, MISTRAL, BERT, ROBERTA, DISTILBERT, BART, MARIAN)
FAMILIES: dict[str, Family] = {family.kind: family for family in ALL}
