"""The built-in corpus: a small synchronous grammar of English and French that knows which word answers to which.

    from regard.text import grammar
    for pair in grammar.Drawn(grammar.translation, 1000, split="train", seed=0):
        print(pair.source, "|", pair.target, "|", pair.links)

Read `sentences` for what it can say, `tokens` for how the two languages are kept together, `nouns`, `verbs` and
`adjectives` for its words.
"""

from regard.text.grammar.corpus_files import as_prose, write
from regard.text.grammar.drawn import SPLITS, Drawn, translation
from regard.text.grammar.lexicon import lemmas
from regard.text.grammar.opinions import opinion, opinion_french, review, review_french, verdict, verdict_french
from regard.text.grammar.rng import Draw
from regard.text.grammar.sentences import sentence
from regard.text.grammar.stories import document, document_french
from regard.text.grammar.views import SENSES, question, sense, tagged, tagged_french

__all__ = [
    "SENSES",
    "SPLITS",
    "Draw",
    "Drawn",
    "as_prose",
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
    "write",
]
