"""Value zeroing: how much a token's vector changes when another one's value is taken away from its attention.

Mohebbi et al. 2023: in one layer, the value of token j becomes zero, the weights stay, and the cosine distance between
what the block then says of token i and what it said before is the share of j in i: the residual sum, the norms and the
feed-forward layer are all in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Listener, Observe, Tap, capture, listening, places_of, taps_of
from regard.attention.layers import DecoderBlock, EncoderBlock
from regard.attention.masks import Dense
from regard.errors import PlaceError, SettingError

TOGETHER = 16  # tokens whose values are taken away side by side

Block = EncoderBlock | DecoderBlock


def value_zeroing(
    model: nn.Module, run: Callable[[], object], places: str | Sequence[str] | None = None, together: int = TOGETHER
) -> dict[str, Tensor]:
    """For each place, how much each of its keys matters to what its block makes of each query: (B, T, S), rows sum to
    one (to 0 where nothing matters).

    `run` runs the model, which is in eval(), once. `places`: all that lie in blocks of ours, by default.
    """
    if model.training:
        raise SettingError("a model that trains", "one in eval(), so that nothing is dropped", where="value_zeroing")
    if together < 1:
        raise SettingError(f"together={together}", "at least 1", where="value_zeroing")
    chosen = _chosen(model, places)
    names = taps_of(model)
    needed = {names[tap]: tap for block in chosen.values() for tap in _taps(block)}
    with torch.no_grad():
        with capture(model, list(needed), Observe(weights=True)) as heard, _calls(chosen.values()) as calls:
            run()
        weights = {tap: _whole(heard[name]) for name, tap in needed.items()}
        return {names[tap]: _shares(block, tap, calls[block], weights, together) for tap, block in chosen.items()}


@dataclass(frozen=True, eq=False)
class Call:
    """What a block was given, x (B, T, D) and perhaps a memory (B, S, D), and what it gave."""

    inputs: tuple[Tensor, ...]
    output: Tensor


def _shares(block: Block, tap: Tap, call: Call, weights: dict[Tap, Tensor], together: int) -> Tensor:
    B, _, _, S = weights[tap].shape
    before = _unit(call.output)
    found = []
    for keys in torch.arange(S, device=call.output.device).split(together):
        after = _unit(_without(block, tap, keys, call, weights)).unflatten(0, (len(keys), B))
        found.append(((after - before) ** 2).sum(-1) / 2)  # 1 - cosine, without its cancellation
    distances = torch.cat(found).permute(1, 2, 0)  # (S, B, T) to (B, T, S)
    distances = distances * (weights[tap] != 0).any(1)  # who is not looked at changes nothing but roundings
    total = distances.sum(-1, keepdim=True)
    return (distances / total.masked_fill(total == 0, 1.0)).to(call.output.dtype)


def _without(block: Block, tap: Tap, keys: Tensor, call: Call, weights: dict[Tap, Tensor]) -> Tensor:
    """What the block says when the values of these keys are zero, one after the other: (keys * B, T, D).

    A value of zero is a weight of zero, of which the others know nothing. Weights before the change are as they were;
    those after it are computed again, over whom they saw.
    """
    n = len(keys)
    answers = {one: _repeated(weights[one], n) for one in _taps(block)}
    answers[tap].unflatten(0, (n, -1))[torch.arange(n), ..., keys] = 0.0
    how: dict[str, Any] = {}
    if isinstance(block, DecoderBlock) and tap is not block.cross.tap:
        saw = (answers.pop(block.cross.tap) != 0).any(1, keepdim=True)
        how["memory_mask"] = Dense(saw)
    places: dict[nn.Module, str] = {one: str(number) for number, one in enumerate(answers)}
    by_place = {places[one]: answer for one, answer in answers.items()}

    def hear(place: str, got: Attended) -> Tensor:
        return by_place[place]

    with listening(Listener(places, Observe(), hear)):
        said: Tensor = block(*(_repeated(x, n) for x in call.inputs), **how)
    return said


def _chosen(model: nn.Module, places: str | Sequence[str] | None) -> dict[Tap, Block]:
    """The taps at these places, each with its block."""
    inside = {tap: block for block in model.modules() if isinstance(block, Block) for tap in _taps(block)}
    if places is None:
        wanted: list[nn.Module] = list(inside)
    else:
        wanted = list(places_of(model, places))
    names = taps_of(model)
    strange = [names.get(tap, "a module without a tap") for tap in wanted if tap not in inside]
    if strange or not wanted:
        came = f"places {', '.join(strange[:5])}" if inside else f"a {type(model).__name__} without Transformer blocks"
        known = ", ".join(names[tap] for tap in inside)
        expected = f"places in an EncoderBlock or a DecoderBlock of regard{': ' if known else ''}{known}"
        raise PlaceError(came, expected, where="value_zeroing")
    return {tap: block for tap, block in inside.items() if tap in wanted}


def _taps(block: Block) -> list[Tap]:
    return [block.self.tap, block.cross.tap] if isinstance(block, DecoderBlock) else [block.self.tap]


@contextmanager
def _calls(blocks: Iterable[Block]) -> Iterator[dict[Block, Call]]:
    """What these blocks are given, and give, until the with-block ends."""
    calls: dict[Block, Call] = {}

    def hook(block: Any, args: tuple[Tensor, ...], how: dict[str, Any], output: Tensor) -> None:
        if how.get("cache") is not None or how.get("caches") is not None:
            raise SettingError("a step with a cache", "a run over the whole text at once", where="value_zeroing")
        if block in calls:
            raise PlaceError("a second call of a block", "a run that calls each block once", where="value_zeroing")
        calls[block] = Call(args, output)

    handles = [block.register_forward_hook(hook, with_kwargs=True) for block in set(blocks)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _whole(got: Attended) -> Tensor:
    assert got.weights is not None
    return got.weights


def _repeated(x: Tensor, times: int) -> Tensor:
    """(B, ...) to (times * B, ...), a copy."""
    return x.repeat(times, *[1] * (x.dim() - 1))


def _unit(x: Tensor) -> Tensor:
    return nn.functional.normalize(x.double(), dim=-1)
