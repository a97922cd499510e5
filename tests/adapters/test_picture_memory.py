"""Memory of looking at pictures: no tensor has a number for each pair of a query and a key, however many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adapters import vision_models
from adapters.vision_models import CLIP_VISION, FAMILIES, LLAMA, build
from regard import look

pytest.importorskip("transformers")


class LargestTensor(TorchDispatchMode):
    """Counts the numbers of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.shape = 0, ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, Tensor) and one._is_view() is False and one.numel() > self.count:
                self.count, self.shape = one.numel(), tuple(one.shape)
        return found


def largest_tensor(model: Any, image: Any) -> tuple[LargestTensor, list[int]]:
    """The largest tensor of a look, and the lengths of the maps."""
    with LargestTensor() as found:
        record = look(model, image).record
    return found, [place.S for place in record.places]


def test_a_picture_of_many_tokens_takes_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLaVA with 3,600 patches, every one of which is a token of the text too."""
    many = {"text_config": {**LLAMA, "max_position_embeddings": 4096}, "image_token_id": 50, "vision_feature_layer": -1}
    many |= {"vision_config": {**CLIP_VISION, "image_size": 60, "patch_size": 1}}
    monkeypatch.setitem(vision_models.FAMILIES, "llava", FAMILIES["llava"]._replace(config=many))
    found, lengths = largest_tensor(build("llava"), np.zeros((60, 60, 3), np.uint8))
    assert lengths == [3601] * 4 and found.count < 3600**2 / 3, found.shape


def test_frames_of_a_video_take_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen-VL: each pair of frames is a chunk of attention, whose map is not held either."""
    family = FAMILIES["qwen2 vl"]
    small = {**family.config, "vision_config": {**family.config["vision_config"], "patch_size": 4}}
    monkeypatch.setitem(vision_models.FAMILIES, "qwen2 vl", family._replace(config=small))
    found, lengths = largest_tensor(build("qwen2 vl"), [np.zeros((4, 240, 240, 3), np.uint8)])
    assert lengths == [7200, 7200, 1803, 1803] and found.count < 2 * 3600**2 / 3, found.shape
