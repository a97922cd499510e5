"""Writing, token by token: one way of searching serves every model that can begin, step and reorder (search.py).

Greedy, Sample and Beam are searches; Rules say what may be written, Written is what came of it. `greedy_decode` goes on
from a prefix, `forced` goes through a given text (teacher forcing); `continued` and Translator take text and give text.
"""

from regard.decoding.beam import Beam, LengthPenalty
from regard.decoding.generate import Continuation, continued, unsaid
from regard.decoding.greedy import Greedy, greedy_decode
from regard.decoding.sampling import Sample
from regard.decoding.score import forced
from regard.decoding.search import Rules, Search, Stepper, Written
from regard.decoding.translate import Tell, Translated, Translator

__all__ = [
    "Beam",
    "Continuation",
    "Greedy",
    "LengthPenalty",
    "Rules",
    "Sample",
    "Search",
    "Stepper",
    "Tell",
    "Translated",
    "Translator",
    "Written",
    "continued",
    "forced",
    "greedy_decode",
    "unsaid",
]
