"""Texts that hold a picture or a sound: as many placeholder tokens as the model makes vectors of it, so that its tower
and its projector run too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from zoo_models import FIRST_SPECIAL

BEFORE, AFTER = 6, 6  # words on either side: padding hides four of them
LONGEST = 256
PLACEHOLDERS = {
    "get_image_features": (("image_token_id", "image_token_index", "media_placeholder_token_id"), "pixel_values"),
    "get_audio_features": (("audio_token_id", "audio_token_index"), "input_features"),
}
STARTS = {
    "get_image_features": ("vision_start_token_id", "image_start_token_id", "boi_token_id"),
    "get_audio_features": ("audio_start_token_id", "boa_token_id"),
}


def texts_with_placeholders(model: Any, source: Any, parameters: dict[str, bool]) -> Iterator[dict[str, Any]]:
    """Two texts with a picture each, then two with a sound each, where the model tells what it makes of one."""
    if "input_ids" not in parameters:
        return
    for method, (tokens, main) in PLACEHOLDERS.items():
        make = getattr(model, method, None) or getattr(getattr(model, "base_model", None), method, None)
        token = _setting(model.config, tokens)
        if make is None or token is None or main not in parameters:
            continue
        taken = inspect.signature(make).parameters
        names = [name for name in taken if name in source.KNOWN and name in parameters and name != "input_ids"]
        bare = [name for name in names if "mask" not in name]
        for layout, wanted in product(source.LAYOUTS, [names] if bare == names else [bare, names]):
            seen = source.draw(wanted, layout)
            try:
                with torch.no_grad():
                    rows = _vectors(make(**seen))
            except Exception:  # not the layout of this model: another may be
                continue
            if rows % 2 == 0 and 0 < rows // 2 <= LONGEST:
                ids = _text_around(token, rows // 2, _setting(model.config, STARTS[method]), source)
                yield {"input_ids": ids, **seen, **_token_types(ids, token, parameters)}


def _setting(config: Any, names: tuple[str, ...]) -> int | None:
    return next((one for name in names if isinstance(one := getattr(config, name, None), int)), None)


def _vectors(made: Any) -> int:
    """How many vectors stand for the pictures, in whatever the model returns them."""
    if isinstance(made, Tensor):
        return made[..., 0].numel()
    if getattr(made, "pooler_output", None) is not None:
        return _vectors(made.pooler_output)
    if hasattr(made, "last_hidden_state"):
        return _vectors(made.last_hidden_state)
    return sum(_vectors(one) for one in made)


def _text_around(token: int, count: int, start: int | None, source: Any) -> Tensor:
    """Words, the start of a picture, its placeholders, words."""
    generator = torch.Generator().manual_seed(source.seed)
    words = torch.randint(5, FIRST_SPECIAL, (2, BEFORE + AFTER), generator=generator)
    if start is not None:
        words[:, BEFORE - 1] = start
    return torch.cat([words[:, :BEFORE], torch.full((2, count), token), words[:, BEFORE:]], 1)


def _token_types(ids: Tensor, token: int, parameters: dict[str, bool]) -> dict[str, Tensor]:
    """Which tokens are of the picture, for models that ask."""
    names = [name for name in ("mm_token_type_ids", "token_type_ids") if name in parameters]
    return {name: (ids == token).long() for name in names}
