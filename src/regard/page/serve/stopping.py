"""How a model's work is given up: the next of its modules that is called finds the sign, and stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, get_ident
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook


class Stopped(Exception):
    """Nobody waits for this work any more."""


def check(stop: Event) -> None:
    if stop.is_set():
        raise Stopped


@contextmanager
def stoppable(stop: Event) -> Iterator[None]:
    """Inside, in this thread alone, a call of any torch module raises Stopped once `stop` is set."""
    own = get_ident()

    def look(module: nn.Module, inputs: Any) -> None:
        if get_ident() == own:
            check(stop)

    hook = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()
