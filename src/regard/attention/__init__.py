"""Attention, one mechanism: `attend` and the values it takes. Needs torch alone."""

from regard.attention.attend import Choice, attend, choose
from regard.attention.biases import DenseBias
from regard.attention.hearing import Heard, capture
from regard.attention.memory import Memory
from regard.attention.observe import Attended, Observe, Top
from regard.attention.prepared import Prepared
from regard.attention.tap import Tap

__all__ = [
    "Attended",
    "Choice",
    "DenseBias",
    "Heard",
    "Memory",
    "Observe",
    "Prepared",
    "Tap",
    "Top",
    "attend",
    "capture",
    "choose",
]
