"""Writing, token by token: one way of searching serves every model that can begin, step and reorder (stepper.py).

Greedy, Sample and Beam are searches; Rules say what may be written, Written is what came of it. `forced` goes through a
given text instead, and `continued` takes text and gives text.
"""

from regard.decoding.beam import Beam
from regard.decoding.forced import forced
from regard.decoding.generate import Continuation, continued
from regard.decoding.greedy import Greedy
from regard.decoding.penalties import LengthPenalty
from regard.decoding.sample import Sample
from regard.decoding.stepper import Stepper
from regard.decoding.writing import Rules, Search, Written

__all__ = [
    "Beam",
    "Continuation",
    "Greedy",
    "LengthPenalty",
    "Rules",
    "Sample",
    "Search",
    "Stepper",
    "Written",
    "continued",
    "forced",
]
