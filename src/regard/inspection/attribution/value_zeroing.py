"""Value zeroing: how much a token's vector changes when another token's value is set to zero in its attention.

Mohebbi et al. 2023: in one layer, the value of token j becomes zero while the weights stay; the cosine distance between
the block's new and old output for token i is the share of j in i. The residual connection, the norms and the
feed-forward layer are all included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe, Tap, TapListener, capture, listen, places_of, taps_of
from regard.attention.layers import DecoderBlock, EncoderBlock
from regard.attention.masks import Dense
from regard.errors import PlaceError, SettingError

KEYS_AT_ONCE = 16  # tokens whose values are zeroed in one batch

Block = EncoderBlock | DecoderBlock


def value_zeroing(
    model: nn.Module,
    run: Callable[[], object],
    places: str | Sequence[str] | None = None,
    keys_at_once: int = KEYS_AT_ONCE,
) -> dict[str, Tensor]:
    """For each place, the share of each of its keys in its block's output for each query: (B, T, S), rows sum to one
    (to 0 where nothing changes).

    `run` runs the model, which is in eval(), once. `places`: by default all those in blocks of ours.
    """
    if model.training:
        raise SettingError("The model is in training mode", where="value_zeroing", advice="Call model.eval() first.")
    if keys_at_once < 1:
        raise SettingError(f"keys_at_once={keys_at_once}", "at least 1", where="value_zeroing")
    chosen = _chosen_blocks(model, places)
    names = taps_of(model)
    needed = {names[tap]: tap for block in chosen.values() for tap in _taps(block)}
    with torch.no_grad():
        with capture(model, list(needed), Observe(weights=True)) as heard, _record_calls(chosen.values()) as calls:
            run()
        weights = {tap: _expect_weights(heard[name]) for name, tap in needed.items()}
        return {
            names[tap]: _change_shares(block, tap, calls[block], weights, keys_at_once) for tap, block in chosen.items()
        }


@dataclass(frozen=True, eq=False)
class BlockCall:
    """The inputs of a block, x (B, T, D) and perhaps a memory (B, S, D), and its output."""

    inputs: tuple[Tensor, ...]
    output: Tensor


def _change_shares(block: Block, tap: Tap, call: BlockCall, weights: dict[Tap, Tensor], keys_at_once: int) -> Tensor:
    B, _, _, S = weights[tap].shape
    before = _unit(call.output)
    found = []
    for keys in torch.arange(S, device=call.output.device).split(keys_at_once):
        after = _unit(_zeroed_output(block, tap, keys, call, weights)).unflatten(0, (len(keys), B))
        found.append(((after - before) ** 2).sum(-1) / 2)  # 1 - cosine, without its cancellation
    distances = torch.cat(found).permute(1, 2, 0)  # (S, B, T) to (B, T, S)
    distances = distances * (weights[tap] != 0).any(1)  # a key without weight changes nothing but roundings
    total = distances.sum(-1, keepdim=True)
    return (distances / total.masked_fill(total == 0, 1.0)).to(call.output.dtype)


def _zeroed_output(block: Block, tap: Tap, keys: Tensor, call: BlockCall, weights: dict[Tap, Tensor]) -> Tensor:
    """The output of the block when the values of these keys are zero, one key at a time: (keys * B, T, D).

    A value of zero is a weight of zero, the other weights unchanged. Weights before the change stay; those after it are
    computed again, with the same visible keys.
    """
    n = len(keys)
    answers = {one: _repeat_batch(weights[one], n) for one in _taps(block)}
    answers[tap].unflatten(0, (n, -1))[torch.arange(n), ..., keys] = 0.0
    how: dict[str, Any] = {}
    if isinstance(block, DecoderBlock) and tap is not block.cross.tap:
        visible = (answers.pop(block.cross.tap) != 0).any(1, keepdim=True)
        how["memory_mask"] = Dense(visible)
    places: dict[nn.Module, str] = {one: str(number) for number, one in enumerate(answers)}
    by_place = {places[one]: answer for one, answer in answers.items()}

    def on_attention(place: str, got: Attended) -> Tensor:
        return by_place[place]

    with listen(TapListener(places, Observe(), on_attention)):
        output: Tensor = block(*(_repeat_batch(x, n) for x in call.inputs), **how)
    return output


def _chosen_blocks(model: nn.Module, places: str | Sequence[str] | None) -> dict[Tap, Block]:
    """The taps at these places, each with its block."""
    inside = {tap: block for block in model.modules() if isinstance(block, Block) for tap in _taps(block)}
    if not inside:
        problem = f"A {type(model).__name__} has no Transformer blocks of regard"
        raise PlaceError(problem, where="value_zeroing", advice="It needs an EncoderBlock or a DecoderBlock.")
    wanted: list[nn.Module] = list(inside) if places is None else list(places_of(model, places))
    names = taps_of(model)
    outside = [names.get(tap, "a module without a tap") for tap in wanted if tap not in inside]
    if outside:
        problem = f"These places are not in a Transformer block of regard: {', '.join(outside[:5])}"
        known = ", ".join(names[tap] for tap in inside)
        raise PlaceError(problem, where="value_zeroing", advice=f"Places in blocks: {known}.")
    return {tap: block for tap, block in inside.items() if tap in wanted}


def _taps(block: Block) -> list[Tap]:
    return [block.self.tap, block.cross.tap] if isinstance(block, DecoderBlock) else [block.self.tap]


@contextmanager
def _record_calls(blocks: Iterable[Block]) -> Iterator[dict[Block, BlockCall]]:
    """The inputs and outputs of these blocks until the with-block ends."""
    calls: dict[Block, BlockCall] = {}

    def hook(block: Any, args: tuple[Tensor, ...], how: dict[str, Any], output: Tensor) -> None:
        if how.get("cache") is not None or how.get("caches") is not None:
            problem = "The model was called with a KV cache"
            raise SettingError(problem, where="value_zeroing", advice="Run it over the whole text at once.")
        if block in calls:
            problem = "A block was called twice"
            raise PlaceError(problem, where="value_zeroing", advice="The run must call each block once.")
        calls[block] = BlockCall(args, output)

    handles = [block.register_forward_hook(hook, with_kwargs=True) for block in set(blocks)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _expect_weights(got: Attended) -> Tensor:
    assert got.weights is not None
    return got.weights


def _repeat_batch(x: Tensor, times: int) -> Tensor:
    """(B, ...) to (times * B, ...), a copy."""
    return x.repeat(times, *[1] * (x.dim() - 1))


def _unit(x: Tensor) -> Tensor:
    return nn.functional.normalize(x.double(), dim=-1)
