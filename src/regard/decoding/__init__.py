"""Decoding: greedy, sampling and beam search for every model that can start, step and reorder (search.py).

Greedy, Sample and Beam are searches; Rules constrain what they may generate, a Hypothesis is a result. `greedy_decode`
continues a prefix, `teacher_force` scores a given text (teacher forcing); `generate_text` and Translator map text to
text, Captioner pictures to text.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.decoding.beam import Beam as Beam, LengthPenalty as LengthPenalty
    from regard.decoding.caption import (
        MAX_CAPTION as MAX_CAPTION,
        Captioned as Captioned,
        Captioner as Captioner,
        fit_pictures as fit_pictures,
    )
    from regard.decoding.generate import (
        Continuation as Continuation,
        ban_unknown as ban_unknown,
        generate_text as generate_text,
    )
    from regard.decoding.greedy import Greedy as Greedy, greedy_decode as greedy_decode
    from regard.decoding.sampling import Sample as Sample
    from regard.decoding.score import teacher_force as teacher_force
    from regard.decoding.search import Hypothesis as Hypothesis, Rules as Rules, Search as Search, Stepper as Stepper
    from regard.decoding.translate import (
        ProgressCallback as ProgressCallback,
        Translated as Translated,
        Translator as Translator,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "beam": ("Beam", "LengthPenalty"),
        "caption": ("MAX_CAPTION", "Captioned", "Captioner", "fit_pictures"),
        "generate": ("Continuation", "generate_text", "ban_unknown"),
        "greedy": ("Greedy", "greedy_decode"),
        "sampling": ("Sample",),
        "score": ("teacher_force",),
        "search": ("Rules", "Search", "Stepper", "Hypothesis"),
        "translate": ("ProgressCallback", "Translated", "Translator"),
    },
)
