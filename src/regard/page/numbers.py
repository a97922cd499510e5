"""A record as plain numbers for other programs: JSON, or NumPy's npz."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from regard.files import write_whole
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record

MOST = 2**22  # weights that a file holds whole; of longer texts it has the statistics, and says so


def save_json(record: Record, path: Path) -> None:
    """Sides, steps, and for each place its statistics and, of each head, the weights rounded to 4 places."""
    whole = _fits(record)
    told = record.told()
    places = [{**about, **_numbers(place, whole)} for about, place in zip(told["places"], record.places, strict=True)]
    told |= {"places": places, "whole": whole}
    if record.measures:
        told["measures"] = [one.described() | {"values": one.values.tolist()} for one in record.measures]
    write_whole(path, json.dumps(told, ensure_ascii=False).encode())


def save_arrays(record: Record, path: Path) -> None:
    """The tensors of the record by their names, the rest of it as JSON in "record", "N.weights" of each place, and the
    values of its measures as "measures.N"."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in record.tensors().items()}
    arrays["record"] = np.frombuffer(json.dumps(record.told(), ensure_ascii=False).encode(), dtype=np.uint8)
    if _fits(record):
        for number, place in enumerate(record.places):
            if place.kept is not None:
                arrays[f"{number}.weights"] = np.stack([place.tile(head).numpy() for head in place.kept.heads])
    arrays |= {f"measures.{number}": one.values for number, one in enumerate(record.measures)}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    write_whole(path, file.getvalue())


def _fits(record: Record) -> bool:
    return sum(place.heads * place.T * place.S for place in record.places) <= MOST


def _numbers(place: Place, whole: bool) -> dict[str, Any]:
    seen = place.statistics
    found: dict[str, Any] = {
        "entropy": _rounded(seen.entropy),
        "received": _rounded(seen.received),
        "top": {"weights": _rounded(seen.top_values), "keys": seen.top_indices.tolist()},
    }
    if whole and place.kept is not None:
        found["weights"] = {str(head): _rounded(place.tile(head)) for head in place.kept.heads}
    return found


def _rounded(tensor: Any) -> Any:
    """Nested lists, 4 places behind the point."""
    return np.round(tensor.double().numpy(), 4).tolist()
