"""Inputs that are tensors: how many rows their batch has, and the positions of a map whose meaning is certain.

A map over the patches of a picture is labelled by rows and columns where the picture and the patch size of its encoder
give just that many; a map over the ids of a text is labelled by tokens. All other positions have no names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.adapters.token_row import TokenRow
from regard.errors import SettingError

CLASS_TOKENS = ("cls_token", "class_token", "class_embedding")  # parameters of encoders of pictures
REGISTER_TOKENS = ("register_tokens", "storage_tokens")
CLASS_TOKEN_LAST = ("llama4_vision_model",)  # model types whose class token comes after the patches
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
    """What is known of the positions that the places of a model attend from and to, for one row of its inputs."""

    model: nn.Module
    inputs: Mapping[str, Tensor]
    row: int = 0
    tokenizer: Any = None

    def axis(self, place: str, count: int) -> TokenRow | None:
        """The labels of `count` positions at a place; None where they are not known for certain."""
        tower, config = self._tower(place)
        if config is None:
            return None
        return self._picture(tower, config, count) or self._text(place, config, count)

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
        """The patches of a picture, row by row, after the class and register tokens that the encoder has."""
        picture, patch = self.inputs.get("pixel_values"), getattr(config, "patch_size", None)
        size = (patch, patch) if isinstance(patch, int) else tuple(patch or ())
        strided = getattr(config, "patch_stride", None) not in (None, patch)
        if picture is None or picture.dim() != 4 or len(size) != 2 or strided:
            return None
        high, wide = (pixels // one for pixels, one in zip(picture.shape[-2:], size, strict=True))
        before = _special_tokens(tower)
        if count == high * wide:
            before = []
        elif count != high * wide + len(before) or getattr(config, "model_type", "") in CLASS_TOKEN_LAST:
            return None
        row = TokenRow(f"picture of {high} x {wide} patches")
        return row.add_special(*before).add_words([f"{r},{c}" for r in range(high) for c in range(wide)])

    def _text(self, place: str, config: Any, count: int) -> TokenRow | None:
        """The tokens of the text, of an encoder or decoder that reads nothing else."""
        ids = self.inputs.get("input_ids")
        whole = getattr(self.model, "config", config)
        if ids is None or self.tokenizer is None or ids.size(-1) != count or not hasattr(config, "vocab_size"):
            return None
        if getattr(whole, "is_encoder_decoder", False) or "cross" in place or hasattr(config, "patch_size"):
            return None
        tokens = self.tokenizer.convert_ids_to_tokens(ids[self.row].tolist())
        return TokenRow("text").add_words([str(token) for token in tokens])


def _special_tokens(tower: nn.Module) -> list[str]:
    """The tokens before the patches, as the parameters of an encoder tell."""
    found = {path.rpartition(".")[2]: one for path, one in tower.named_parameters()}
    tokens = ["[CLS]" for name in CLASS_TOKENS if name in found][:1]
    tokens += ["[DIST]"] if "distillation_token" in found else []
    registers = next((found[name] for name in REGISTER_TOKENS if name in found), None)
    return tokens + [f"[REG {n}]" for n in range(0 if registers is None else registers.size(-2))]
