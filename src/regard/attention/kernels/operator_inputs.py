"""AttentionInputs as arguments of a torch.library operator, which a compiled graph calls as one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from regard.attention import masks
from regard.attention.biases import DenseBias
from regard.attention.inputs import AttentionInputs
from regard.attention.operator_arguments import OperatorArguments, has_form
from regard.attention.scores import Additive, Dot, Match, ScaledDot, Score
from regard.attention.windows import LocalP


def as_arguments(prepared: AttentionInputs) -> tuple[OperatorArguments, str]:
    """The arguments, and the text of these inputs. A mask or a bias of a user's own is evaluated."""
    grid = prepared.grid
    packed = OperatorArguments([*grid.lead, grid.T, grid.S], [prepared.q, prepared.k])
    everywhere = prepared.index(slice(None), grid.T), prepared.index(slice(None), grid.S)
    mask, bias = prepared.mask, prepared.bias
    if not has_form(mask):
        mask = masks.Dense(mask.allowed(*everywhere, grid).expand(*grid.lead, grid.T, grid.S))
    if bias is not None and not has_form(bias):
        bias = DenseBias(bias.tile(*everywhere))
    window = None if prepared.window is None else prepared.window.half_width
    values = (_score_values(prepared), mask, bias, window, prepared.predicted, prepared.normalise, prepared.live)
    return packed, packed.text(values)


def from_arguments(packed: OperatorArguments, text: str) -> AttentionInputs:
    """The inputs of a text."""
    (score, *values), mask, bias, half_width, predicted, normalise, live = packed.value(text)
    window = None if half_width is None else _without_init(LocalP, half_width=half_width)
    q, k, grid = packed.tensors[0], packed.tensors[1], packed.grid
    return AttentionInputs(_SCORES[score](*values), q, k, mask, bias, window, predicted, grid, normalise, live=live)


def unsupported_reason(prepared: AttentionInputs) -> str | None:
    """Why no operator can take these inputs; None: it can."""
    if _score_values(prepared) is None:
        return f"a score of {type(prepared.score).__name__} is code of its own"
    if not has_form(prepared.normalise):
        return f"a normaliser of {type(prepared.normalise).__name__} is code of its own"
    return None


def _score_values(prepared: AttentionInputs) -> tuple[Any, ...] | None:
    """What a score needs beside prepared queries and keys; None: unknown."""
    score = prepared.score
    if isinstance(score, Dot):
        return "dot", score.scale(prepared.k.size(-1)), score.cap
    if type(score) is Additive:
        return "additive", score.vector
    return ("match",) if type(score) is Match else None


def _without_init(kind: type[nn.Module], **values: Any) -> Any:
    """A module with these attributes alone; tensors among them need be no parameters."""
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    for name, value in values.items():
        setattr(made, name, value)
    return made


_SCORES: dict[str, Callable[..., Score]] = {
    "dot": ScaledDot,
    "additive": lambda vector: _without_init(Additive, vector=vector),
    "match": Match,
}
