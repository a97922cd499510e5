"""Attention, one mechanism: `attend` and the values it takes. Needs torch alone."""

from regard.attention.attend import Choice, attend, choose
from regard.attention.biases import DenseBias
from regard.attention.capture import Heard, capture
from regard.attention.inputs import Prepared
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.observe import Attended, Observe, Top
from regard.attention.tap import Tap

__all__ = [
    "Attended",
    "Choice",
    "DenseBias",
    "Heard",
    "Observe",
    "Prepared",
    "PreparedKeys",
    "Tap",
    "Top",
    "attend",
    "capture",
    "choose",
]
