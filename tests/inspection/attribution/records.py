"""Records small enough for laws: one place from queries and keys, or all places of a small model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend, capture
from regard.attention.masks import Mask
from regard.attention.scores import Dot
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.record import Record
from regard.inspection.record.token_axis import TokenAxis
from regard.models.bert import Bert, BertSize
from regard.models.blocks import BlockConfig, gelu_feedforward
from regard.models.gpt import GPT
from regard.models.transformer import Transformer, TransformerSize as Sizes, build_transformer

WORDS = 11


def bert(layers: int = 2) -> Bert:
    torch.manual_seed(0)
    return large(Bert.of(WORDS, BertSize(layers, 8, heads=2), max_positions=9, dropout=0.0), 2.0)


def gpt(layers: int = 2) -> GPT:
    torch.manual_seed(0)
    return large(GPT(WORDS, 8, layers, 2, 12), 5.0)


def translator() -> Transformer:
    torch.manual_seed(0)
    smooth = BlockConfig(feedforward=gelu_feedforward)  # so that integrals along a path need few steps
    return large(build_transformer(WORDS, Sizes(layers=2, width=8, heads=2, feedforward_dim=12), smooth), 1.0)


def large(model, by: float):
    """In float64, with weights that are large enough to tell something."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(by)
    return model.double().eval()


def ids(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(1, WORDS, shape, generator=torch.Generator().manual_seed(seed))


def place(
    heads: int = 2,
    T: int = 6,
    S: int | None = None,
    mask: Mask | None = None,
    value_norms: Tensor | None = None,
    seed: int = 0,
) -> PlaceRecord:
    """Random queries and keys, as they were attended and stored."""
    rng = torch.Generator().manual_seed(seed)
    S = T if S is None else S
    q, k = (torch.randn(1, heads, n, 3, generator=rng) for n in (T, S))
    got = attend(q, k, score=Dot(), mask=mask, observe=record_observe(S))
    kind = "self" if T == S else "cross"
    return place_of("0.self", [got], kind=kind, value_norms=value_norms)


def place_of(name: str, calls: list[Attended], queries: int = 0, keys: int = 0, **more) -> PlaceRecord:
    stored = store_qk(calls, None)
    seen = merge_statistics(calls, stored)
    return PlaceRecord(
        name, 0, queries=queries, keys=keys, heads=len(seen.entropy), statistics=seen, stored=stored, **more
    )


def record(*places: PlaceRecord) -> Record:
    """A text that looks at itself through these places."""
    return Record((side("text", places[0].S),), places)


def side(name: str, count: int) -> TokenAxis:
    return TokenAxis.from_tokens(name, [f"t{number}" for number in range(count)])


def heard(model: nn.Module, run: Callable[[], object], axes: Mapping[str, tuple[int, int]]) -> tuple[PlaceRecord, ...]:
    """The places of a model that ran, each with the axes that `axes` gives to the beginning of its name."""
    with torch.no_grad(), capture(model, "*", record_observe(8)) as found:
        run()
    places = []
    for name in found:
        queries, keys = next(both for start, both in axes.items() if name.startswith(start) or name.endswith(start))
        kind = "cross" if name.endswith("cross") else "self"
        places.append(place_of(name, found.calls(name), queries, keys, kind=kind))
    return tuple(places)


def translated(source: Tensor, target: Tensor, model: Transformer | None = None) -> Record:
    """The record of a translator: source, target as it is read, target as it is written."""
    translating = model or translator()
    lengths = torch.tensor([source.size(1)])
    axes = {"cross": (2, 0), "encoder": (0, 0), "decoder": (1, 1)}
    places = heard(translating, lambda: translating(source, lengths, target), axes)
    counts = {"source": source.size(1), "read": target.size(1), "written": target.size(1)}
    return Record(tuple(side(name, count) for name, count in counts.items()), places)
