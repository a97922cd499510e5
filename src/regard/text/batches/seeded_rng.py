"""Seeded random number generators (RNGs) per epoch, purpose and example, without global state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np

from regard.errors import SettingError

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, the step of SplitMix64
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Epoch:
    """One pass over the data: all its randomness is a pure function of `seed`, `number` and the purpose.

    >>> Epoch(0, 3).rng("order").permutation(4)             # a generator for one purpose
    >>> Epoch(0, 3).uniforms("mask", examples, positions)      # one number in [0, 1) for each position
    """

    seed: int
    number: int = 0

    def __post_init__(self) -> None:
        for name, value in (("seed", self.seed), ("epoch", self.number)):
            if not isinstance(value, int) or not 0 <= value < 2**63:
                raise SettingError(f"{name}={value!r}", "a whole number from 0 to 2**63 - 1", where="Epoch")

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for this purpose, the same at every call and on every machine."""
        key = self.hashes(purpose, np.arange(2))
        return np.random.Generator(np.random.Philox(key=key))

    def hashes(self, purpose: str, *numbers: np.ndarray) -> np.ndarray:
        """64 bits for each tuple of numbers (arrays that broadcast), by SplitMix64; each can be computed alone."""
        state = np.array([_purpose_hash(purpose)], dtype=np.uint64)
        for number in (np.array([self.seed]), np.array([self.number]), *numbers):
            state = _mix(state + (number.astype(np.uint64) + np.uint64(1)) * GOLDEN_GAMMA)
        return state

    def uniforms(self, purpose: str, *numbers: np.ndarray) -> np.ndarray:
        """A number in [0, 1) for each tuple of numbers."""
        return (self.hashes(purpose, *numbers) >> np.uint64(11)) * 2.0**-53


def _mix(bits: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit affects every output bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))


@cache
def _purpose_hash(purpose: str) -> int:
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")
