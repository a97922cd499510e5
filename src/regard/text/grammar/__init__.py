"""The built-in corpus: a small synchronous grammar of English and French with gold word alignments.

    from regard.text import grammar
    for pair in grammar.GeneratedCorpus(grammar.translation, 1000, split="train", seed=0):
        print(pair.source, "|", pair.target, "|", pair.links)

Read `sentences` for what it covers, `tokens` for how the two languages are aligned, `nouns`, `verbs` and `adjectives`
for its vocabulary.
"""

from regard.text.grammar.corpus_files import VIEWS as TEXT_VIEWS, detokenize, write_corpus
from regard.text.grammar.generated_corpus import SPLITS, GeneratedCorpus, translation
from regard.text.grammar.lexicon import lemmas
from regard.text.grammar.opinions import opinion, opinion_french, review, review_french, verdict, verdict_french
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.sentences import sentence
from regard.text.grammar.stories import document, document_french
from regard.text.grammar.views import SENSES, question, sense, tagged, tagged_french

__all__ = [
    "SENSES",
    "SPLITS",
    "TEXT_VIEWS",
    "GrammarRng",
    "GeneratedCorpus",
    "detokenize",
    "document",
    "document_french",
    "lemmas",
    "opinion",
    "opinion_french",
    "question",
    "review",
    "review_french",
    "sense",
    "sentence",
    "tagged",
    "tagged_french",
    "translation",
    "verdict",
    "verdict_french",
    "write_corpus",
]
