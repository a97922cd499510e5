"""A record recomputes every weight to a thousandth, in space linear in the length, and reports what it lacks."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard import Observe, attend, masks, scores
from regard.attention.biases import DenseBias
from regard.attention.normalise import Entmax, Sink, Sparsemax
from regard.attention.positions import Alibi, Relative
from regard.attention.windows import LocalM, LocalP
from regard.errors import RecordError, SettingError
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.mask_codec import NotReconstructible
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import GenerationStep, Record
from regard.inspection.record.token_axis import TokenAxis

H, T, S, D = 4, 13, 17, 8


def recorded(q: Tensor, k: Tensor, name: str = "here", **how: Any) -> tuple[PlaceRecord, Tensor]:
    """A place as a record keeps it, and the weights (H, T, S) themselves."""
    got = attend(q, k, k, observe=record_observe(q.size(-2)) | Observe(weights=True), **how)
    stored = store_qk([got], None)
    seen = merge_statistics([got], stored)
    assert got.weights is not None
    weights = got.weights[0] if got.weights.dim() == 4 else got.weights
    return PlaceRecord(name, 0, "self", 0, 1, seen.entropy.size(0), seen, stored), weights


def axes(place: PlaceRecord) -> tuple[TokenAxis, TokenAxis]:
    return TokenAxis.from_tokens("queries", [f"q{n}" for n in range(place.T)]), TokenAxis.from_tokens(
        "keys", [f"k{n}" for n in range(place.S)]
    )


def vectors(seed: int = 0, size: float = 4.0, key_heads: int = H) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(1, H, T, D) * size, torch.randn(1, key_heads, S, D) * size + 3.0


GAPS = torch.rand(1, 1, T, S, generator=torch.Generator().manual_seed(5)) > 0.4
CASES: dict[str, dict[str, Any]] = {
    "everything": {},
    "causal": {"mask": masks.Causal()},
    "padding": {"mask": masks.Padding(torch.tensor([11]), torch.tensor([9]))},
    "padding on the left": {"mask": masks.Padding(torch.tensor([11]), side="left")},
    "a window": {"mask": masks.Window(2, 3), "score": scores.Cosine(0.1)},
    "a causal mask written out": {"mask": masks.Dense(torch.ones(T, S).tril(4).bool())},
    "a mask with gaps": {"mask": masks.Dense(GAPS)},
    "either of two": {"mask": masks.Window(1, 1) | masks.Window(0, 0, offset=9)},
    "by distance": {"bias": Alibi(H)},
    "by learned distance": {"bias": Relative(H, 5)},
    "by key": {"bias": DenseBias(torch.linspace(-2, 2, S).view(1, 1, 1, S).expand(1, 1, T, S))},
    "by pair": {"bias": DenseBias(torch.randn(1, H, T, S, generator=torch.Generator().manual_seed(6)))},
    "local-m": {"window": LocalM(3)},
    "a sink": {"normalise": Sink(torch.tensor([4.0, 0.0, 60.0, -9.0]))},
    "a soft cap": {"score": scores.ScaledDot(cap=4.0), "mask": masks.Causal()},
    "a sink over capped scores": {
        "score": scores.ScaledDot(cap=6.0),
        "normalise": Sink(torch.ones(H)),
        "bias": Alibi(H),
    },
    "sparsemax": {"normalise": Sparsemax(), "mask": masks.Causal(offset=0)},
    "entmax": {"normalise": Entmax(1.5), "score": scores.ScaledDot(cap=9.0)},
    "entmax by bisection": {"normalise": Entmax(1.25), "mask": masks.Padding(torch.tensor([11]), torch.tensor([9]))},
    "keys that an indexer chose": {
        "mask": masks.Causal() & masks.Keys(torch.tensor([0, 3, 4, 9, 12]).expand(1, 1, T, 5))
    },
}


@pytest.mark.parametrize("key_heads", [H, 2], ids=["own keys", "grouped"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_weight_is_recomputed(case: str, key_heads: int) -> None:
    place, weights = recorded(*vectors(key_heads=key_heads), **CASES[case])
    for head in range(H):
        torch.testing.assert_close(place.tile(head), weights[head], atol=1e-3, rtol=0)
        rows, cols = torch.tensor([3, 0, 12]), slice(4, 9)
        torch.testing.assert_close(place.tile(head, rows, cols), weights[head][rows, cols], atol=1e-3, rtol=0)


def test_huge_scores_are_recomputed() -> None:
    """Scores of 80 and more, whose keys have a large part in common."""
    torch.manual_seed(1)
    q, k = torch.randn(1, 2, 40, 64) * 3, torch.randn(1, 2, 40, 64) * 3 + 20
    place, weights = recorded(q, k)
    assert attend(q, k).lse.max() > 80
    assert max((place.tile(head) - weights[head]).abs().max() for head in range(2)) < 1e-3


@pytest.mark.parametrize("window", [None, "local-p"])
def test_additive_scores_and_predicted_windows_are_recomputed(window: str | None) -> None:
    torch.manual_seed(2)
    q, k = torch.randn(1, T, D), torch.randn(1, S, D)
    place, weights = recorded(q, k, score=scores.Additive(D, 6), window=None if window is None else LocalP(D, 4))
    torch.testing.assert_close(place.tile(0), weights[0], atol=1e-4, rtol=0)


def test_the_share_of_a_sink_is_what_the_weights_leave(tmp_path) -> None:
    place, weights = recorded(*vectors(), normalise=Sink(torch.tensor([4.0, 0.0, 60.0, -9.0])))
    Record(axes(place), (place,)).save(tmp_path / "a.regard")
    sink = Record.load(tmp_path / "a.regard").places[0].statistics.sink
    assert sink is not None and sink[2].min() > 0.5 > sink[3].max()
    torch.testing.assert_close(sink, 1 - weights.sum(-1), atol=1e-5, rtol=0)


def test_statistics_are_those_of_the_capture() -> None:
    place, weights = recorded(*vectors(), mask=masks.Causal())
    seen = place.statistics
    torch.testing.assert_close(seen.entropy, torch.special.entr(weights).sum(-1), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.received, weights.sum(-2), atol=1e-4, rtol=1e-4)
    best = weights.topk(8).values
    torch.testing.assert_close(seen.top_values, best, atol=1e-4, rtol=0)
    found = seen.top_indices >= 0  # a query that sees five keys has no eighth
    at = weights.gather(-1, seen.top_indices.clamp(min=0).long())
    torch.testing.assert_close(at[found], best[found], atol=1e-4, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_is_read_back(case: str, tmp_path) -> None:
    place, _ = recorded(*vectors(), **CASES[case])
    before = Record(
        axes(place), (place,), {"model": "m"}, (GenerationStep(2, 7, -0.5, ((7, "x", -0.5), (1, "y", -1.0))),)
    )
    before.save(tmp_path / "a.regard")
    after = Record.load(tmp_path / "a.regard")
    assert after.axes == before.axes and after.facts == before.facts and after.steps == before.steps
    for head in range(H):
        assert torch.equal(after.place("here").tile(head), place.tile(head))
    thumbnail, stored = after.places[0].statistics.thumbnail, place.statistics.thumbnail
    assert thumbnail is not None and stored is not None
    assert (thumbnail - stored).abs().max() < 0.005 * stored.max() + 1e-6


def test_consecutive_calls_are_one_place() -> None:
    """A prompt, then a token at a time against a growing cache: as if all of it had been read at once."""
    torch.manual_seed(3)
    q, k = torch.randn(1, H, T, D), torch.randn(1, H, T, D)
    observe = record_observe(T)
    calls = [attend(q[..., :5, :], k[..., :5, :], mask=masks.Causal(), observe=observe)]
    for at in range(5, T):
        calls.append(attend(q[..., at : at + 1, :], k[..., : at + 1, :], mask=masks.Causal(), observe=observe))
    stored = store_qk(calls, None)
    joined = PlaceRecord("x", 0, "self", 0, 0, H, merge_statistics(calls, stored), stored)
    whole, weights = recorded(q, k, mask=masks.Causal())
    for head in range(H):
        torch.testing.assert_close(joined.tile(head), weights[head], atol=1e-3, rtol=0)
    for name in ("entropy", "received", "top_values"):
        one, other = getattr(joined.statistics, name), getattr(whole.statistics, name)
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(joined.statistics.thumbnail, whole.statistics.thumbnail, atol=1e-3, rtol=0)


@pytest.mark.parametrize("low", [-3e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("scored", [True, False], ids=["beside scores", "alone"])
def test_queries_that_only_see_padding_are_recomputed(low: float, scored: bool) -> None:
    """Their biases are huge negative numbers, the same for all keys or nearly so; the weights are still a softmax."""
    q, k = vectors(size=1.0)
    bias = torch.randn(1, H, T, S, generator=torch.Generator().manual_seed(6))
    bias[..., 4:, :] += low
    bias[:, :, 2, 3:] = low
    place, weights = recorded(q if scored else q * 0, k, bias=DenseBias(bias))
    for head in range(H):
        torch.testing.assert_close(place.tile(head), weights[head], atol=3e-3, rtol=0)


def test_a_map_that_is_not_reconstructible_has_a_reason() -> None:
    got = attend(*vectors(), score=lambda q, k: q @ k.mT, observe=record_observe(T))
    with pytest.raises(NotReconstructible, match="CustomScore, cannot be recomputed"):
        store_qk([got], None)


def test_keys_that_change_from_call_to_call_store_log_weights() -> None:
    """As those of a decoder do that remembers where it has looked."""
    torch.manual_seed(0)
    observe = record_observe(2) | Observe(weights=True)
    calls = [attend(torch.randn(1, 2, D), torch.randn(1, 5, D), observe=observe) for _ in range(3)]
    stored = store_qk(calls, None)
    place = PlaceRecord("x", 0, "cross", 0, 1, 1, merge_statistics(calls, stored), stored)
    expected = torch.cat([call.weights[0] for call in calls if call.weights is not None])
    torch.testing.assert_close(place.tile(0), expected, atol=1e-5, rtol=0)


def test_only_some_heads_are_stored() -> None:
    q, k = vectors(key_heads=2)
    got = attend(q, k, observe=record_observe(T) | Observe(weights=True))
    stored = store_qk([got], [3, 1])
    place = PlaceRecord("x", 0, "self", 0, 1, H, merge_statistics([got], stored), stored)
    assert got.weights is not None
    torch.testing.assert_close(place.tile(3), got.weights[0, 3], atol=1e-3, rtol=0)
    assert stored.queries.codes.size(0) == 2 and place.statistics.entropy.size(0) == H
    with pytest.raises(RecordError, match=r"x: The record has no map of head 0\. Stored: 3, 1"):
        place.tile(0)
    with pytest.raises(RecordError, match="head 4, expected one from 0 to 3"):
        place.tile(4)
    with pytest.raises(SettingError, match=r"head 99, expected heads from 0 to 3"):
        store_qk([got], [99])


def test_the_file_grows_linearly_with_the_length() -> None:
    sizes = []
    for length in (300, 600):
        q = torch.randn(1, 1, length, D)
        place, _ = recorded(q, q, mask=masks.Causal())
        sizes.append(sum(one.nbytes for name, one in Record((), (place,)).tensors().items() if "thumbnail" not in name))
    assert sizes[1] < 2.1 * sizes[0]


class Watch(TorchDispatchMode):
    """The largest number of elements that any operation made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, Tensor):
                self.largest = max(self.largest, one.untyped_storage().nbytes() // one.element_size())
        return found


def test_no_map_is_ever_in_memory() -> None:
    length = 6000
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, length, 4), torch.randn(1, 1, length, 4)
    with Watch() as watch:
        got = attend(q, k, mask=masks.Causal(), observe=record_observe(length))
        stored = store_qk([got], None)
        merge_statistics([got], stored)
    assert watch.largest < length * length / 4


def test_files_that_are_not_records_are_refused(tmp_path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(RecordError, match="File not found"):
        Record.load(tmp_path / "nothing")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RecordError, match="a FIFO, expected a regular file"):
        Record.load(tmp_path / "fifo")
    with pytest.raises(RecordError, match=r"cannot be read \(Is a directory"):
        Record.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RecordError, match="cannot be read"):
        Record.load(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(RecordError, match="not a record"):
        Record.load(tmp_path / "other")
    save_file({"a": torch.zeros(1)}, tmp_path / "later", {"regard": json.dumps({"version": 99})})
    with pytest.raises(RecordError, match=r"version 99, expected version 2"):
        Record.load(tmp_path / "later")
    place, _ = recorded(*vectors())
    record = Record(axes(place), (place,))
    whole = record.tensors()
    save_file(
        {name: one for name, one in whole.items() if "lse" not in name},
        tmp_path / "cut",
        {"regard": json.dumps(record.to_dict())},
    )
    with pytest.raises(RecordError, match="incomplete or damaged"):
        Record.load(tmp_path / "cut")
    with pytest.raises(RecordError, match=r"Unknown place 'there'.*Known: here"):
        record.place("there")


def test_quantisation_is_within_half_a_step() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 50, 5) * torch.tensor([1e-3, 1.0, 10.0, 1e4, 0.0]) + 7
    for centred in (False, True):
        fixed = Int16Tensor.quantize(x, centred=centred)
        for head in range(3):
            assert ((fixed.values(head) - x[head]).abs() <= 0.51 * fixed.scale[head] + 1e-6 * x[head].abs()).all()
    assert Int16Tensor.quantize(torch.empty(2, 0, 3)).codes.shape == (2, 0, 3)
