"""Seeded mutations of JSON, TOML and bytes, for fuzzing the readers of other people's files."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

NUMBERS = (0, -1, 1, 2, 3, 7, 100_000, 2**31, 2**32 - 1, 2**63, 10**30, 0.5, -0.5, 1e308, float("inf"), float("nan"))
TEXTS = (
    "",
    "none",
    "../../etc/passwd",
    "/dev/zero",
    "(a+)+$",
    "(",
    "[UNK]",
    "\x00",
    "é😀",
    "a" * 5000,
    "<s>",
    "gpt2",
    "4",
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None] * 300, {"a": {"b": 1}}, [1, "a", None])
PIECES = (
    b"[" * 500,
    b"{" * 500,
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"',
    b"\\u0000",
    b"9" * 5000,
    b",",
    b"}",
    b"\n",
    b"-",
)


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """The content after one to three changes of its bytes: a flip, a cut, an insertion, a repetition."""
    found = bytearray(content)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(found) + 1)
        match random.randrange(5):
            case 0 if at < len(found):
                found[at] ^= 1 << random.randrange(8)
            case 1:
                del found[at:]
            case 2:
                del found[at : at + random.randint(1, 40)]
            case 3:
                found[at:at] = random.choice(PIECES)
            case _:
                found[at:at] = found[at : at + random.randint(1, 200)] * random.randint(1, 20)
    return bytes(found)


def mutated(data: Any, random: Random) -> Any:
    """The data after one to four changes of a value, inside: replaced, removed, repeated, wrapped, renamed."""
    found = deepcopy(data)
    for _ in range(random.randint(1, 4)):
        holders = [one for one in _holders(found) if one]
        if not holders:
            return _value(random)
        holder = random.choice(holders)
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match random.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder[key:key] = [deepcopy(holder[key])] * random.choice([1, 2, 300])
            case 1 if isinstance(holder, dict):
                holder[random.choice(TEXTS)] = holder.pop(key)
            case 2:
                holder[key] = _wrapped(holder[key], random)
            case 3:
                holder[key] = deepcopy(random.choice(list(_values(found))))
            case _:
                holder[key] = _value(random)
    return found


def as_json(data: Any) -> bytes:
    return json.dumps(data).encode()


def _value(random: Random) -> Any:
    return deepcopy(random.choice(random.choice((NUMBERS, NUMBERS, TEXTS, OTHERS))))


def _wrapped(value: Any, random: Random) -> Any:
    """The value inside lists, objects or sequences of a tokenizer."""
    kinds = ("normalizers", "pretokenizers", "decoders", "processors")
    for _ in range(random.choice([1, 2, 20, 70])):
        value = random.choice(([value], {"a": value}, {"type": "Sequence", random.choice(kinds): [value]}))
    return value


def _holders(data: Any) -> list[Any]:
    """Every object and list inside the data, itself too; not deeper than 150."""
    found, waiting = [], [(data, 0)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, dict | list) and depth < 150:
            found.append(one)
            waiting += [(part, depth + 1) for part in (one.values() if isinstance(one, dict) else one)]
    return found


def _values(data: Any) -> list[Any]:
    return [part for one in _holders(data) for part in (one.values() if isinstance(one, dict) else one)] or [None]
