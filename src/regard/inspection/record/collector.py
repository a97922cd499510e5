"""What a record needs of a forward pass: its calls of attention, in which pass of their module they came, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Captured, Observe, capture_into, places_of, taps_of
from regard.errors import SettingError
from regard.inspection.interventions import is_intervened, reset_query_counts
from regard.inspection.record.build_place import record_observe
from regard.inspection.record.sequences import Moment


@dataclass(frozen=True)
class RecordSpec:
    """The contents of a record.

    places     patterns, as `capture` takes them
    heads      whose maps are stored: all (None), the same ones at every place, or by the name of a place; () stores
               statistics alone
    gradient   also store the gradient of the model's output with respect to each attention weight
    on_target  called with the scalar that gradients are taken of, with its graph
    """

    places: str | Sequence[str] = "*"
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    gradient: bool = False
    on_target: Callable[[Tensor | None], None] | None = None

    def heads_of(self, place: str) -> Sequence[int] | None:
        if isinstance(self.heads, Mapping):
            return self.heads.get(place, ())
        return self.heads


EVERYTHING = RecordSpec()


class Collector(Captured):
    """Captured calls, and the gradients of the model's output with respect to their outputs."""

    def __init__(self, spec: RecordSpec) -> None:
        super().__init__()
        self.wants_gradients, self.on_target = spec.gradient, spec.on_target
        self.gradients = dict[str, list[Tensor]]()
        self.intervened: frozenset[str] = frozenset()  # places with an intervention, whose scores give other weights
        self.moments = dict[str, list[Moment]]()
        self._passes = dict[str, tuple[int, frozenset[int]]]()  # of each module: its forward passes, and what came in
        self._count = 0

    def add(self, place: str, got: Attended) -> None:
        super().add(place, got)
        self.moments.setdefault(place, []).append(Moment(self._count, *self._passes.get(place, (0, frozenset()))))
        self._count += 1

    def enter(self, place: str, inputs: Iterable[Any]) -> None:
        """A module begins a forward pass over these inputs."""
        shapes = [one.shape for one in inputs if isinstance(one, Tensor) and one.is_floating_point()]
        lengths = frozenset(shape[-2] for shape in shapes if len(shape) in (2, 3))
        self._passes[place] = self._passes.get(place, (0, lengths))[0] + 1, lengths

    def take_gradients(self, target: Tensor | None) -> None:
        """`target`: a scalar that the model computed in the captured pass, such as ln p of the generated tokens."""
        if self.on_target is not None:
            self.on_target(target)
        if not self.wants_gradients:
            return
        if target is None or not target.requires_grad:
            raise SettingError(
                "This model has no output to take gradients of",
                where="look gradient",
                advice="Gradients need a model that outputs logits of words or classes.",
            )
        outputs = [(place, call.output) for place in self for call in self.calls(place)]
        if not outputs:
            return  # a model without attention, which is refused below
        found = torch.autograd.grad(target, [output for _, output in outputs], allow_unused=True)
        if all(gradient is None for gradient in found):
            raise SettingError(
                "The model's output does not depend on its captured attention",
                where="look gradient",
                advice="Gradients work for models of this library and of transformers.",
            )
        for (place, output), gradient in zip(outputs, found, strict=True):
            self.gradients.setdefault(place, []).append(torch.zeros_like(output) if gradient is None else gradient)


@contextmanager
def record_calls(model: nn.Module, spec: RecordSpec, length: int) -> Iterator[Collector]:
    """Capture all that a record of a text of this length needs."""
    heard = Collector(spec)
    heard.intervened = frozenset(place for who, place in places_of(model, spec.places).items() if is_intervened(who))
    reset_query_counts()
    observe = record_observe(length) | Observe(values=True)
    gradient = spec.gradient or spec.on_target is not None
    capturing = capture_into(model, spec.places, observe, heard, in_graph=gradient)
    with torch.set_grad_enabled(gradient), capturing, nullcontext() if taps_of(model) else _note_passes(model, heard):
        yield heard


@contextmanager
def _note_passes(model: nn.Module, heard: Collector) -> Iterator[None]:
    """Tell a collector about every forward pass of every module."""

    def note(place: str) -> Callable[..., None]:
        return lambda module, args, kwargs: heard.enter(place, (*args, *kwargs.values()))

    hooks = [one.register_forward_pre_hook(note(at), with_kwargs=True) for one, at in places_of(model).items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
