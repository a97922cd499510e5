"""Image encoders: the vision Transformer (ViT) over patches, with registers, and a convolutional feature grid.

    states = blocks(patches W + positions);     a state for each patch, row by row, and one of the class token

Pixels are (B, H, W, 3), 0 to 255, bytes or floats. Every encoder gives the states of a grid of `rows` x `cols` patches
and one vector for the whole picture; what is no patch (class token, registers) is never among the states.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu

from regard.attention.positions import Sinusoidal
from regard.errors import SettingError, ShapeError, unknown
from regard.models.blocks import BlockConfig, encoder_blocks

MEAN, STD = 110.0, 70.0  # of pixels, roughly
STD_POSITIONS = 0.02  # of fresh learned positions and tokens (Dosovitskiy et al. 2021)


class ImageStates(NamedTuple):
    """The encoded picture: a state for each patch, and a vector for the whole."""

    states: Tensor  # (B, S, D), row by row
    summary: Tensor  # (B, D)


class ImageEncoder(Protocol):
    """A picture of `size` x `size` pixels in, the states of `rows` x `cols` patches, `width` wide, out."""

    size: int
    rows: int
    cols: int
    width: int

    def __call__(self, pixels: Tensor) -> ImageStates: ...


class PatchEncoder(nn.Module):
    """The encoder of a vision Transformer: patch embedding, positions, a class token, registers, self-attention blocks.

    PatchEncoder(64, 8, 96, encoder_blocks(4, 96, 4, 192, VIT), registers=4)

    `stem`: how pixels become patch embeddings: "linear", as published, or "conv", strided convolutions, with which a
    small one learns in a fraction of the steps (Xiao et al. 2021). `positions`: learned, or fixed 2-D sine positions.
    `registers`: learned tokens without a place that take part in
    attention and are then dropped (Darcet et al. 2024). Its sequence is the class token, the registers, the patches.
    """

    def __init__(
        self,
        size: int,
        patch: int,
        width: int,
        blocks: nn.ModuleList,
        final_norm: nn.Module | None = None,
        *,
        stem: str = "linear",
        positions: str = "learned",
        registers: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.size, self.patch, self.width, self.registers = size, patch, width, registers
        self.rows = self.cols = grid_side(size, patch, "PatchEncoder")
        stems: dict[str, Callable[[int, int], nn.Module]] = {"linear": LinearPatches, "conv": ConvPatches}
        if stem not in stems:
            raise unknown(stem, stems, kind="stem", where="PatchEncoder")
        self.stem = stems[stem](patch, width)
        table = sine_positions(self.rows, self.cols, width)
        self.positions: nn.Parameter | None = None
        if positions == "learned":
            self.positions = nn.Parameter(
                STD_POSITIONS * table
            )  # as sines, so that neighbours are alike from the start
        elif positions != "sinusoidal":
            raise SettingError(f"positions={positions!r}", "'learned' or 'sinusoidal'", where="PatchEncoder")
        self.prefix = nn.Parameter(torch.randn(1 + registers, width) * STD_POSITIONS)
        self.dropout = nn.Dropout(dropout)
        self.blocks = blocks
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    @property
    def prefix_tokens(self) -> tuple[str, ...]:
        """The tokens before the patches in the sequence that the blocks attend over."""
        return ("[CLS]", *(f"[REG{number}]" for number in range(1, self.registers + 1)))

    def forward(self, pixels: Tensor) -> ImageStates:
        """pixels (B, size, size, 3): the states of the patches, and that of the class token."""
        states = self.encode(self.embed(pixels))
        return ImageStates(states[:, len(self.prefix) :], states[:, 0])

    def embed(self, pixels: Tensor) -> Tensor:
        """The patch embeddings with their positions, (B, S, D)."""
        patches = self.stem(normalised(pixels, self.size, "PatchEncoder")).flatten(1, 2)
        table = (
            sine_positions(self.rows, self.cols, self.width).to(patches) if self.positions is None else self.positions
        )
        embedded: Tensor = self.dropout(patches + table)
        return embedded

    def encode(self, patches: Tensor) -> Tensor:
        """Embedded patches (B, S, D): the states of class token, R registers and patches, (B, 1 + R + S, D)."""
        x = torch.cat((self.prefix.expand(len(patches), -1, -1), patches), 1)
        for block in self.blocks:
            x = block(x)
        states: Tensor = self.final_norm(x)
        return states


class LinearPatches(nn.Module):
    """A linear layer of the pixels of each patch."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        self.project = nn.Linear(3 * patch * patch, width)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, H, W, 3): (B, rows, cols, width)."""
        x = x.unflatten(2, (-1, self.patch)).unflatten(1, (-1, self.patch))
        found: Tensor = self.project(x.transpose(2, 3).flatten(3))
        return found


class ConvPatches(nn.Module):
    """Convolutions of stride 2, each with ReLU but the last, until a state stands for `patch` x `patch` pixels."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        halvings = patch.bit_length() - 1
        if patch != 1 << halvings or halvings < 1:
            raise SettingError(f"patch={patch}", "2, 4, 8 or another power of two", where="ConvPatches")
        widths = [3, *(max(16, width >> (halvings - 1 - level)) for level in range(halvings - 1)), width]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, 5 if number == 0 else 3, 2, 2 if number == 0 else 1)
            for number, (before, after) in enumerate(pairwise(widths))
        )
        self.norm = nn.LayerNorm(width)
        for conv in self.convs:
            assert isinstance(conv, nn.Conv2d)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """x (B, H, W, 3): (B, rows, cols, width)."""
        x = x.permute(0, 3, 1, 2)  # which is what a convolution calls channels-last: no copy
        for number, conv in enumerate(self.convs):
            x = conv(x if number == 0 else relu(x))
        found: Tensor = self.norm(x.permute(0, 2, 3, 1))
        return found


class ConvEncoder(nn.Module):
    """A convolutional feature grid, for captions that attend to places: one state for each `patch` x `patch` pixels.

    ConvEncoder(64, 4, 64, layers=4)

    Strided convolutions, then residual ones whose dilation is 1, 2, 4, 1, ..., so that a state knows of its neighbours;
    2-D sine positions are added at the end.
    """

    def __init__(self, size: int, patch: int, width: int, layers: int = 4) -> None:
        super().__init__()
        self.size, self.patch, self.width = size, patch, width
        self.rows = self.cols = grid_side(size, patch, "ConvEncoder")
        self.stem = ConvPatches(patch, width)
        self.layers = nn.ModuleList(ResidualConv(width, DILATIONS[number % len(DILATIONS)]) for number in range(layers))
        self.norm = nn.LayerNorm(width)
        self.place = nn.Linear(width, width, bias=False)  # of the positions

    def forward(self, pixels: Tensor) -> ImageStates:
        """pixels (B, size, size, 3): the states of the grid, and their mean."""
        x = self.stem(normalised(pixels, self.size, "ConvEncoder"))
        for layer in self.layers:
            x = layer(x)
        states = self.norm(x).flatten(1, 2)
        states = states + self.place(sine_positions(self.rows, self.cols, self.width).to(states))
        return ImageStates(states, states.mean(1))


DILATIONS = (1, 2, 4, 1)


class ResidualConv(nn.Module):
    """x + W relu(convolution(norm(x))) of a grid (B, rows, cols, D)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(torch.empty(width, width, 3, 3))
        self.bias = nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(width, width)
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        given = self.norm(x).permute(0, 3, 1, 2)
        found = conv2d(given, self.weight, self.bias, padding=self.dilation, dilation=self.dilation)
        return x + self.out(relu(found).permute(0, 2, 3, 1))


def normalised(pixels: Tensor, size: int, where: str) -> Tensor:
    """Pixels (B, size, size, 3), 0 to 255, as floats about 0."""
    if pixels.shape[1:] != (size, size, 3):
        raise ShapeError(f"pixels {tuple(pixels.shape)}", f"(B, {size}, {size}, 3)", where=where)
    floats = pixels if pixels.is_floating_point() else pixels.to(torch.get_default_dtype())
    return (floats - MEAN) / STD


def grid_side(size: int, patch: int, where: str) -> int:
    """How many patches a side has."""
    if patch < 1 or size % patch or size < patch:
        raise SettingError(f"patches of {patch} pixels in pictures of {size}", f"a divisor of {size}", where=where)
    return size // patch


def sine_positions(rows: int, cols: int, width: int) -> Tensor:
    """2-D sine positions (rows * cols, width): half of each vector tells the row, half the column."""
    if width % 4:
        raise SettingError(f"width={width}", "a multiple of 4, for 2-D sine positions", where="sine_positions")
    one = Sinusoidal(width // 2)
    down, across = one.table(torch.arange(rows)), one.table(torch.arange(cols))
    both = torch.cat((down[:, None].expand(-1, cols, -1), across.expand(rows, -1, -1)), -1)
    return both.flatten(0, 1).to(torch.get_default_dtype())


def vit_blocks(layers: int, width: int, heads: int, hidden: int, block: BlockConfig) -> nn.ModuleList:
    """Self-attention blocks with fresh weights as a ViT has them."""
    blocks = encoder_blocks(layers, width, heads, hidden, block)
    for module in blocks.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return blocks
