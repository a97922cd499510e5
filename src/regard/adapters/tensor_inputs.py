"""Inputs that are tensors: how many rows their batch has, and the positions of a map whose meaning is certain.

A map over the patches of a picture is labelled by rows and columns where the picture and the patch size of its encoder
give just that many; a map over the ids of a text is labelled by tokens. All other positions have no names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.adapters.base import Positions
from regard.adapters.token_row import TokenRow
from regard.adapters.vision.crops import patch_sides
from regard.adapters.vision.encoders import KNOWN, special_tokens
from regard.adapters.vision.layout import VisionLayout
from regard.errors import SettingError

CLASS_TOKEN_LAST = ("llama4_vision_model",)  # model types whose class token comes after the patches
TEXT_QUERIES = ("mllama", "blip", "vision-encoder-decoder")  # whose cross-attention is from the text to the picture
PACKED = ("grid_thw", "cu_seqlens", "spatial_shapes")  # inputs beside which pictures lie in one row


def count_rows(inputs: Mapping[str, Tensor]) -> int:
    """The rows of the batch, as far as the inputs tell: their common first dimension, or that of the token ids."""
    if isinstance(ids := inputs.get("input_ids"), Tensor):
        return ids.size(0)
    if any(part in name for name in inputs for part in PACKED):
        return 1
    sizes = {one.size(0) for one in inputs.values() if isinstance(one, Tensor) and one.dim() > 1}
    return sizes.pop() if len(sizes) == 1 else 1


def is_even(inputs: Mapping[str, Tensor], rows: int) -> bool:
    """Whether every input has one entry for each row; pictures of several texts may come one after another."""
    return all(one.size(0) == rows for one in inputs.values() if isinstance(one, Tensor) and one.dim() > 1)


def possible_rows(inputs: Mapping[str, Tensor]) -> tuple[int, ...]:
    """How many rows the batch of any torch module may have: vectors come as (B, T, D) or as (T, B, D)."""
    second = [one.size(1) for one in inputs.values() if isinstance(one, Tensor) and one.dim() == 3]
    return tuple(dict.fromkeys((count_rows(inputs), *second)))


def describe_inputs(inputs: Mapping[str, Tensor]) -> str:
    """The names and shapes of the inputs, in words."""
    named = [f"{name} {' x '.join(map(str, one.shape))}" for name, one in inputs.items() if isinstance(one, Tensor)]
    return ", ".join(named)


def longest_input(inputs: Mapping[str, Any]) -> int:
    """The longest sequence among the inputs, as far as they tell: ids (B, T), or vectors (B, T, D)."""
    return max((one.size(1) for one in inputs.values() if isinstance(one, Tensor) and one.dim() in (2, 3)), default=1)


def expect_row(row: int, rows: int) -> None:
    """Refuse a row that the batch does not have."""
    if not 0 <= row < rows:
        expected = "row 0, the only one" if rows == 1 else f"a row from 0 to {rows - 1}"
        raise SettingError(f"row {row}", expected, where="look")


@dataclass(frozen=True, eq=False)
class KnownPositions:
    """What is known of the positions that the places of a model attend from and to, for one row of its inputs.

    `vision`: the pictures among the inputs, and the patches of families whose order is known.
    """

    model: nn.Module
    inputs: Mapping[str, Tensor]
    vision: VisionLayout
    tokenizer: Any = None
    texts: dict[int, TokenRow] = field(default_factory=dict)

    def axis(self, asked: Positions) -> TokenRow | None:
        """The tokens of positions at a place; None where they are not known for certain."""
        tower, config = self._tower(asked.place)
        if config is None:
            return None
        count, whole = sum(asked.sizes), asked.join == "steps" or len(asked.sizes) == 1
        if asked.is_key:  # the keys of cross-attention come from elsewhere
            return self.vision.keys_of_cross_attention(count) if whole else None
        kind = str(getattr(config, "model_type", ""))
        if kind in KNOWN and kind == self.vision.kind and (row := self._encoder(tower, kind, asked)) is not None:
            return row
        if not whole or not asked.in_order:
            return None
        return self._picture(tower, config, count) or self._text(asked.place, config, count)

    def _encoder(self, tower: nn.Module, kind: str, asked: Positions) -> TokenRow | None:
        return self.vision.all_sequences(tower, kind, asked.sizes, asked.join)

    def _tower(self, place: str) -> tuple[nn.Module, Any]:
        """The part of the model that a place belongs to, with its config: the outermost with the innermost config."""
        modules, path = [self.model], place.split(".") if place else []
        for name in path:
            modules.append(getattr(modules[-1], name))
        configs = [getattr(module, "config", None) for module in modules]
        config = next((one for one in reversed(configs) if one is not None), None)
        at = next((at for at, one in enumerate(configs) if one is config), 0)
        return modules[at], config

    def _picture(self, tower: nn.Module, config: Any, count: int) -> TokenRow | None:
        """The patches of an encoder whose order is not known by its family: their names, if the picture and the size
        of a patch give just that many, and no grid."""
        picture, sides = self.inputs.get("pixel_values"), patch_sides(config)
        if picture is None or picture.dim() != 4 or sides is None:
            return None
        high, wide = (pixels // one for pixels, one in zip(picture.shape[-2:], sides, strict=True))
        before = special_tokens(tower)
        if count == high * wide:
            before = []
        elif count != high * wide + len(before) or getattr(config, "model_type", "") in CLASS_TOKEN_LAST:
            return None
        self.vision.note(
            f"The patches have no grid: no test has found their order in encoders of the type {config.model_type}"
        )
        row = TokenRow(f"a picture of {high} x {wide} patches")
        return row.add_special(*before).add_words([f"{r},{c}" for r in range(high) for c in range(wide)])

    def _text(self, place: str, config: Any, count: int) -> TokenRow | None:
        """The tokens of the text, of an encoder or decoder that reads nothing else; images may stand in it."""
        whole = getattr(self.model, "config", config)
        kind = getattr(whole, "model_type", "")
        ids = self.inputs.get("decoder_input_ids" if kind == "vision-encoder-decoder" else "input_ids")
        if ids is None or ids.size(-1) != count or not hasattr(config, "vocab_size"):
            return None
        if getattr(whole, "is_encoder_decoder", False) and kind != "vision-encoder-decoder":
            return None
        if ("cross" in place and kind not in TEXT_QUERIES) or hasattr(config, "patch_size"):
            return None
        if "text_encoder" in dict(self.model.named_children()) and "decoder" in place:
            return None  # of BLIP, which reads another text there
        row = ids[self.vision.row]
        if self.tokenizer is None and not self.vision.has_images_in(row):
            return None
        if 0 not in self.texts:
            self.texts[0] = self.vision.text(row, self._pieces(row.tolist()))
        return self.texts[0]

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        if self.tokenizer is None:
            return [str(at) for at in range(len(ids))]
        return [
            str(token).removeprefix("\u2581").removeprefix("\u0120") or str(token)
            for token in self.tokenizer.convert_ids_to_tokens(list(ids))
        ]
