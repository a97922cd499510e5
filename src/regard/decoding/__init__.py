"""Writing, token by token: one way of searching serves every model that can begin, step and reorder (search.py).

Greedy, Sample and Beam are searches; Rules say what may be written, Written is what came of it. `greedy_decode` goes on
from a prefix, `forced` goes through a given text (teacher forcing); `continued` and Translator take text and give text.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.decoding.beam import Beam as Beam, LengthPenalty as LengthPenalty
    from regard.decoding.generate import Continuation as Continuation, continued as continued, unsaid as unsaid
    from regard.decoding.greedy import Greedy as Greedy, greedy_decode as greedy_decode
    from regard.decoding.sampling import Sample as Sample
    from regard.decoding.score import forced as forced
    from regard.decoding.search import Rules as Rules, Search as Search, Stepper as Stepper, Written as Written
    from regard.decoding.translate import Tell as Tell, Translated as Translated, Translator as Translator

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "beam": ("Beam", "LengthPenalty"),
        "generate": ("Continuation", "continued", "unsaid"),
        "greedy": ("Greedy", "greedy_decode"),
        "sampling": ("Sample",),
        "score": ("forced",),
        "search": ("Rules", "Search", "Stepper", "Written"),
        "translate": ("Tell", "Translated", "Translator"),
    },
)
