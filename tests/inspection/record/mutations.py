"""Seeded mutations of a record's metadata and tensors, as a damaged or hostile file has them."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from inspection.record.test_record import CASES, D, H, S, T, axes, recorded, vectors
from regard.attention import scores
from regard.attention.windows import LocalP
from regard.inspection.record.place import StoredGradients
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import GenerationStep, MeasureMap, Record

STRANGE: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    -2,
    7,
    2**31,
    10**18,
    10**400,
    0.5,
    -0.5,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "x",
    "12",
    "self",
    "\ud800",
    "\x00",
    "y" * 100_000,
    [],
    [[]],
    [0],
    [0, 0],
    [1, 2, 3, 4, 5, 6, 7, 8, 9],
    ["a", None],
    {},
    {"a": 1},
    {"run": "fake"},
]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int16, torch.int32, torch.int64]


def samples() -> list[Record]:
    """Records that have, together, every field and every tensor."""
    found = []
    for number, (name, case) in enumerate(CASES.items()):
        place, _ = recorded(*vectors(seed=number), **case)
        facts: dict[str, Any] = {"model": name, "kind": "continues", "rows": 2, "row": 1, "classes": [["good", 0.5]]}
        facts |= {"look": {"run": "fake", "text": "a b", "other": None, "prefix": [1, 2]}, "estimate": 0.5}
        steps = (GenerationStep(2, 7, -0.5, ((7, "x", -0.5), (1, "y", float("-inf")))),)
        own = axes(place)
        values = torch.rand(place.T, place.S).numpy()
        measures = (MeasureMap("norms", "Norms", "here", 0, 1, values, (own[0].tokens, own[1].tokens)),)
        found.append(Record(own, (place,), facts, steps, measures, {"layer.1": "Odd"}))
    return [*found, *_additive(), *_with_gradients()]


def _additive() -> list[Record]:
    torch.manual_seed(7)
    q, k = torch.randn(1, T, D), torch.randn(1, S, D)
    place, _ = recorded(q, k, score=scores.Additive(D, 6), window=LocalP(D, 4))
    return [Record(axes(place), (place,))]


def _with_gradients() -> list[Record]:
    place, _ = recorded(*vectors(seed=8))
    codes = [Int16Tensor.quantize(torch.rand(H, length, 6)) for length in (T, S)]
    gradients = StoredGradients(codes[0], codes[1], tuple(range(H)))
    about: dict[str, Any] = {"module": "layer", "call": 1, "joined": "chunks", "note": "two chunks"}
    whole = replace(place, stored_gradients=gradients, value_norms=torch.rand(H, S), **about)
    other = replace(place, name="statistics", stored=None, why="nobody asked")
    return [Record(axes(place), (whole, other))]  # whose statistics are the same tensors: `write` copies them


class Mutations:
    """Damaged files, each from its own seed."""

    def __init__(self) -> None:
        self.whole = [(record.to_dict(), record.tensors()) for record in samples()]

    def write(self, seed: int, path: Path) -> None:
        chance = random.Random(seed)
        data, tensors = chance.choice(self.whole)
        data, tensors = json.loads(json.dumps(data)), dict(tensors)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            if chance.random() < 0.6:
                _change_metadata(data, chance)
            else:
                _change_tensors(tensors, chance)
        content = save(
            {name: one.clone(memory_format=torch.contiguous_format) for name, one in tensors.items()},
            {"regard": _header(data, chance)},
        )
        if chance.random() < 0.05:
            content = _change_bytes(content, chance)
        path.write_bytes(content)


def _header(data: Any, chance: random.Random) -> str:
    header = json.dumps(data)
    odd = chance.random()
    if odd < 0.02:
        return header[: chance.randrange(len(header))]
    if odd < 0.03:
        return chance.choice(["[" * 100_000, "null", "[]", '"x"', '{"version": 2}', "9" * 5000, "{}"])
    if odd < 0.04:
        return header.replace('"facts": {', '"facts": {"deep": ' + "[" * 600 + "]" * 600 + ", ", 1)
    return header


def _nodes(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        found.append((value, key))
        _nodes(one, found)
    return found


def _change_metadata(data: dict[str, Any], chance: random.Random) -> None:
    parent: Any = data
    key: Any = chance.choice(list(data))
    for _ in range(chance.randrange(6)):  # down from the top, so that small fields are as likely as long lists
        inside = parent[key]
        if not isinstance(inside, dict | list) or not inside:
            break
        parent, key = inside, chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    how = chance.randrange(6)
    value = parent[key]
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[chance.choice(["extra", "", key + "x", "\ud800"])] = parent.pop(key)
    elif how == 2 and isinstance(value, list):
        value.extend(copy.deepcopy(value[:2]) or [0])
    elif how == 3 and isinstance(value, int | float) and not isinstance(value, bool):
        parent[key] = value + chance.choice([-1, 1, -100, 1000, 0.5])
    elif how == 4:
        spots = _nodes(data, [])
        other, place = chance.choice(spots)
        parent[key] = copy.deepcopy(other[place])
    else:
        parent[key] = copy.deepcopy(chance.choice(STRANGE))


def _change_tensors(tensors: dict[str, Tensor], chance: random.Random) -> None:
    name = chance.choice(list(tensors))
    one = tensors[name]
    how = chance.randrange(8)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[chance.choice(["7." + name, "0.odd", "odd", name + "x", "0.mask", "0.sink"])] = tensors.pop(name)
    elif how == 2:
        tensors[name] = one.nan_to_num().to(chance.choice(DTYPES))
    elif how == 3 and one.dim():
        dim = chance.randrange(one.dim())
        tensors[name] = one.narrow(dim, 0, chance.randrange(one.size(dim) + 1)).clone()
    elif how == 4 and one.dim():
        tensors[name] = torch.cat([one, one], chance.randrange(one.dim()))
    elif how == 5:
        tensors[name] = chance.choice([one.flatten(), one.unsqueeze(0), one.sum(), one.mT if one.dim() > 1 else one])
        tensors[name] = tensors[name].to(one.dtype)
    elif how == 6 and one.is_floating_point():
        tensors[name] = torch.full_like(one, chance.choice([float("nan"), float("inf"), -1.0, 1e38, 0.0]))
    else:
        tensors[name] = torch.full_like(one, chance.choice([-1, 0, 1, 2, 100, 127]))


def _change_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])])
