"""Attention: `attend`, the one function of every mechanism, and the values it takes. Needs torch alone."""

from regard.attention.attend import BackendChoice, attend, choose, full_map, plain
from regard.attention.biases import DenseBias
from regard.attention.capture import Captured, capture, capture_into, named_places
from regard.attention.copy_attention import copy_log_prob, log_mass, max_materialized
from regard.attention.eager_hooks import HEAD_COUNTS
from regard.attention.grid import Grid, Lead, cut
from regard.attention.groups import Queries, Spans
from regard.attention.inputs import AttentionInputs, Index, autocast_disabled
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.kv_cache import KVCache
from regard.attention.mask_analysis import mask_of_table
from regard.attention.normalise import Entmax, Normaliser, Sink, Softmax, Sparsemax
from regard.attention.observe import Attended, Observe, Top, cell_assignment, received_by_key_heads
from regard.attention.pooling import AttentionPooling
from regard.attention.residual import Residual, is_compiled_half_cuda
from regard.attention.tap import OnAttention, Tap, TapListener, dispatch, listen, places_of, taps_of
from regard.attention.torch_hooks import attention_modules, intercept_attention

__all__ = [
    "Attended",
    "AttentionPooling",
    "KVCache",
    "BackendChoice",
    "DenseBias",
    "Grid",
    "HEAD_COUNTS",
    "Lead",
    "OnAttention",
    "Captured",
    "TapListener",
    "Observe",
    "Entmax",
    "Normaliser",
    "Sink",
    "Softmax",
    "Sparsemax",
    "AttentionInputs",
    "PreparedKeys",
    "Queries",
    "Residual",
    "Spans",
    "Tap",
    "Top",
    "Index",
    "attend",
    "attention_modules",
    "capture",
    "cell_assignment",
    "choose",
    "is_compiled_half_cuda",
    "copy_log_prob",
    "cut",
    "capture_into",
    "listen",
    "mask_of_table",
    "log_mass",
    "named_places",
    "max_materialized",
    "intercept_attention",
    "autocast_disabled",
    "places_of",
    "received_by_key_heads",
    "plain",
    "dispatch",
    "taps_of",
    "full_map",
]
