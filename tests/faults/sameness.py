"""Whether two runs ended alike, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, uint8

from regard.training.events.log import read_log


def bits(path: Path) -> dict[str, Any]:
    """The tensors of a file: their kinds, shapes and bytes, by name."""
    return {name: (one.dtype, tuple(one.shape), _bytes(one)) for name, one in load_file(path).items()}


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(uint8).numpy().tobytes() if tensor.numel() else b""


def newest(folder: Path) -> Path:
    """The last checkpoint of a run."""
    return max((folder / "state").glob("step-*"))


def end_of(folder: Path) -> dict[str, Any]:
    """All that a run ends with, but the time that it took: by name, so that a difference can be named."""
    last = newest(folder)
    found = {f"model {name}": one for name, one in bits(folder / "model.safetensors").items()}
    for path in sorted(last.rglob("*.safetensors")):
        found |= {f"{path.relative_to(last)} {name}": one for name, one in bits(path).items()}
    scalars = json.loads((last / "scalars.json").read_bytes())
    scalars["progress"].pop("seconds")
    evaluated = [entry for entry in read_log(folder / "log.jsonl") if entry["event"] == "evaluated"]
    logged = [(entry["step"], entry["metrics"]) for entry in evaluated]
    return {**found, "step": last.name, "scalars": scalars, "evaluated": logged}


def differences(one: Path, other: Path) -> list[str]:
    """The names of what two runs do not end alike with."""
    ends = end_of(one), end_of(other)
    return sorted(name for name in {**ends[0], **ends[1]} if ends[0].get(name) != ends[1].get(name))
