"""The text of a vision-language model: ids with a place for every token of every image.

The processor in a model's folder writes it, with its chat template, if it can be loaded. Otherwise the images come
first, and the text after them.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.adapters.hub_tokenizer import expect_embedded, tokenize
from regard.adapters.token_row import TokenRow
from regard.adapters.vision.images import GivenImage
from regard.adapters.vision.preprocess import FILES
from regard.errors import SettingError
from regard.hub import quiet_transformers, reason_of

BRACKETS = (  # tokens of a configuration around those of an image
    ("vision_start_token_id", "vision_end_token_id"),
    ("boi_token_index", "eoi_token_index"),
    ("boi_token_id", "eoi_token_id"),
)
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")


def load_processor(folder: Path | None) -> tuple[Any, str]:
    """The processor of images and texts in a folder; None where there is none, or where it needs other packages, and
    then the reason."""
    if folder is None or not all(any((folder / name).exists() for name in names) for names in (TOKENIZERS, FILES)):
        return None, ""
    from transformers import AutoProcessor, ProcessorMixin

    with quiet_transformers():
        try:
            found = AutoProcessor.from_pretrained(folder, backend="pil", local_files_only=True, trust_remote_code=False)
        except Exception as error:  # noqa: BLE001  of any kind; image processor and tokenizer are then used alone
            return None, f" ({reason_of(error)})"
    return (found if isinstance(found, ProcessorMixin) else None), ""


def processed_prompt(processor: Any, images: Sequence[GivenImage], text: str) -> dict[str, Tensor]:
    """The tensors that a processor makes of images and a text, with its chat template where it has one."""
    token = getattr(processor, "image_token", None) or "<image>"
    written = text
    try:
        with quiet_transformers():
            if token not in text and getattr(processor, "chat_template", None):
                content = [{"type": "image"} for _ in images] + [{"type": "text", "text": text}]
                chat = [{"role": "user", "content": content}]
                written = processor.apply_chat_template(chat, add_generation_prompt=True)
            elif token not in text:
                written = token * len(images) + text
            found = processor(images=[one.pixels for one in images], text=written, return_tensors="pt")
    except Exception as error:  # processors raise errors of many kinds
        problem = f"The {type(processor).__name__} cannot read these images and this text ({reason_of(error)})"
        raise SettingError(problem, where="look") from error
    return {name: one for name, one in found.items() if isinstance(one, Tensor)}


def plain_prompt(
    model: Any, tokenizer: Any, rows: Sequence[TokenRow], images: Sequence[GivenImage], text: str | None
) -> dict[str, Tensor]:
    """Ids with the tokens of images, or of videos, before the text. `rows`: the tokens of each of them."""
    config = model.config
    ids = [] if text is None else list(tokenize(_needed(tokenizer), text)["input_ids"])
    start = getattr(tokenizer, "bos_token_id", None)
    start = getattr(config.get_text_config(), "bos_token_id", None) if tokenizer is None else start
    head = ids[:1] if ids and ids[0] == start else [start] if not ids and isinstance(start, int) else []
    image = image_token(config, any(one.video for one in images))
    each = [len(row) for row in rows] if config.model_type != "mllama" else [1] * len(images)
    places = [_bracketed(config, [image] * size) for size in each]
    body = [token for place in places for token in place]
    whole = [*body, *head, *ids[len(head) :]] if config.model_type == "paligemma" else [*head, *body, *ids[len(head) :]]
    size = getattr(model.get_input_embeddings(), "num_embeddings", None)
    if tokenizer is not None:
        expect_embedded(tokenizer, [token for token in ids if token != image], size, "look")
    found = {"input_ids": torch.tensor([whole], device=model.device)}
    return found | _beside(model, found["input_ids"], image)


def text_alone(model: Any, tokenizer: Any, text: str) -> dict[str, Tensor]:
    """The text of a model that reads it in a part of its own, such as CLIP."""
    how: dict[str, Any] = {"truncation": False}
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if str(model.config.model_type).startswith("siglip") and isinstance(longest, int):
        how = {"padding": "max_length", "max_length": longest, "truncation": False}  # as SigLIP was trained
    ids = list(tokenize(_needed(tokenizer), text, **how)["input_ids"])
    if isinstance(longest, int) and 0 < longest < len(ids):
        raise SettingError(f"a text of {len(ids)} tokens", f"at most {longest}", where="look")
    expect_embedded(tokenizer, ids, getattr(config, "vocab_size", None), "look")
    return {"input_ids": torch.tensor([ids], device=model.device)}


def image_token(config: Any, video: bool = False) -> int:
    """The id that stands in a text where a token of an image does."""
    names = ("video_token_id", "video_token_index") if video else ("image_token_id", "image_token_index")
    found = next((one for name in names if isinstance(one := getattr(config, name, None), int)), None)
    if found is None:
        problem = f"The configuration of this {config.model_type} names no token of images"
        raise SettingError(problem, where="look", advice="Pass the tensors that its processor makes.")
    return found


def _needed(tokenizer: Any) -> Any:
    if tokenizer is None:
        advice = "Pass tokenizer=, transformers' own, or a folder with the files of one, such as tokenizer.json."
        raise SettingError("This model has no tokenizer", where="look", advice=advice)
    return tokenizer


def _bracketed(config: Any, tokens: list[int]) -> list[int]:
    """The tokens of an image between those that the configuration has for its beginning and its end."""
    for names in BRACKETS:
        first, last = (getattr(config, name, None) for name in names)
        if isinstance(first, int) and isinstance(last, int):
            return [first, *tokens, last]
    return tokens


def _beside(model: Any, ids: Tensor, image: int) -> dict[str, Tensor]:
    """The other tensors that a model needs beside the ids: which tokens are images, which images a token sees."""
    taken, config = inspect.signature(model.forward).parameters, model.config
    found = {"attention_mask": torch.ones_like(ids)}
    is_image = ids == image
    video = getattr(config, "video_token_id", None) == image
    if "mm_token_type_ids" in taken:
        found["mm_token_type_ids"] = is_image.long() * (2 if video else 1)
    if "token_type_ids" in taken:
        found["token_type_ids"] = is_image.long() * (config.model_type != "paligemma")
    return found


def mllama_masks(ids: Tensor, image: int, tiles: Sequence[int], most: int) -> Tensor:
    """Llama Vision: which tiles a token sees (1, T, images, tiles): those of the images before it."""
    seen = np.cumsum(ids[0].numpy() == image)
    found = torch.zeros(1, ids.size(1), len(tiles), most, dtype=torch.long)
    for number, count in enumerate(tiles):
        found[0, torch.from_numpy(seen > number), number, :count] = 1
    return found
