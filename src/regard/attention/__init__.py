"""Attention, one mechanism: `attend` and the values it takes. Needs torch alone."""

from regard.attention.attend import Choice, attend, choose, plain, whole_map
from regard.attention.biases import DenseBias
from regard.attention.capture import Heard, capture, hearing
from regard.attention.copy_attention import copied, log_mass, most_held
from regard.attention.grid import Grid
from regard.attention.inputs import Prepared, Where, own_precision
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.kv_cache import Cache
from regard.attention.observe import Attended, Observe, Top, cells
from regard.attention.pooling import AttentionPooling
from regard.attention.residual import Residual, compiled_half
from regard.attention.tap import Hear, Listener, Tap, listening, places_of, report, taps_of
from regard.attention.torch_hooks import overheard

__all__ = [
    "Attended",
    "AttentionPooling",
    "Cache",
    "Choice",
    "DenseBias",
    "Grid",
    "Hear",
    "Heard",
    "Listener",
    "Observe",
    "Prepared",
    "PreparedKeys",
    "Residual",
    "Tap",
    "Top",
    "Where",
    "attend",
    "capture",
    "cells",
    "choose",
    "compiled_half",
    "copied",
    "hearing",
    "listening",
    "log_mass",
    "most_held",
    "overheard",
    "own_precision",
    "places_of",
    "plain",
    "report",
    "taps_of",
    "whole_map",
]
