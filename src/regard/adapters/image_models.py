"""Adapters of regard's models that look at pictures: image classifier, captioners, phrase pointer.

The axes of their maps are the patches of the picture (behind class token and registers inside a vit), and the words of
a caption or phrase. A picture may be of any size; its patches cover what the model was given of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.adapters.base import (
    Axes,
    Decision,
    ForwardPass,
    Kind,
    ModelAdapter,
    ModelOutput,
    PredictedTokens,
    check_prefix,
    generate_greedy,
)
from regard.adapters.token_row import TokenRow
from regard.adapters.vision.images import GivenImage
from regard.attention import AttentionPooling
from regard.decoding import MAX_CAPTION, fit_pictures
from regard.errors import SettingError
from regard.models import PatchEncoder
from regard.pictures import Fit, PatchGrid, Picture
from regard.text import Labels, Tokenizer

PATCHES, FIRST, SECOND = range(3)  # the patches; then the words as queries: of a caption as input and as output


@dataclass(frozen=True, eq=False, repr=False)
class ImageModelAdapter(ModelAdapter):
    """A model of ours with an image encoder. `fit`: how a picture becomes the square that it takes."""

    model: Any
    tokenizer: Tokenizer | None = None
    name: str = "image model"
    description: str = ""
    fit: Fit = "crop"

    @property
    def tokenizers(self) -> tuple[Any, ...]:
        return () if self.tokenizer is None else (self.tokenizer,)

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        raise SettingError(
            f"{self.name} looks at pictures, and got a text",
            where="look",
            advice="Give an image file, which ends with .png, .jpg, .jpeg or .webp, and the text after it.",
        )

    @property
    def decision(self) -> Decision:
        raise SettingError(
            f"A {type(self.model).__name__} looks at pictures",
            where="audit",
            advice="The audit removes words of a text: use a model that reads text.",
        )

    def prepare_images(
        self, images: Sequence[GivenImage], text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        if len(images) != 1 or images[0].video:
            given = "a video" if len(images) == 1 else f"{len(images)} images"
            raise SettingError(given, f"one image: {self.name} looks at one", where="look")
        return self.prepare_image(images[0].pixels, text, prefix)

    def prepare_image(
        self, picture: np.ndarray, text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        """A forward pass over a picture, uint8 (H, W, 3), with a text: a caption, a phrase."""
        raise NotImplementedError

    def pixels(self, picture: np.ndarray) -> Tensor:
        """(1, size, size, 3), as the model takes it."""
        if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
            raise SettingError(f"a picture {picture.dtype} {picture.shape}", "uint8 (H, W, 3)", where="look")
        return fit_pictures([picture], self.model.encoder.size, self.fit).to(self.device)

    def patches(self, picture: np.ndarray) -> TokenRow:
        """The axis of the patches."""
        return TokenRow("picture").add_patches(self._grid(picture, 0))

    def sequence(self, picture: np.ndarray) -> list[TokenRow]:
        """The axis of a vit's own sequence, which its blocks attend over; none for other encoders."""
        encoder = self.model.encoder
        if not isinstance(encoder, PatchEncoder):
            return []
        row = TokenRow("patches of the encoder", optional=True).add_special(*encoder.prefix_tokens)
        return [row.add_patches(self._grid(picture, len(encoder.prefix_tokens)))]

    def _grid(self, picture: np.ndarray, first: int) -> PatchGrid:
        encoder, (height, width) = self.model.encoder, picture.shape[:2]
        side = min(height, width)
        left, top = (width - side) / 2 / width, (height - side) / 2 / height
        box = (0.0, 0.0, 1.0, 1.0) if self.fit == "stretch" else (left, top, 1 - left, 1 - top)
        return PatchGrid.raster(encoder.rows, encoder.cols, first, box=box)


@dataclass(frozen=True, eq=False, repr=False)
class ImageClassifierAdapter(ImageModelAdapter):
    """An image classifier; `labels`: the names of its classes, if known."""

    labels: Labels | None = None

    def axes_of(self, place: str) -> Axes:
        if isinstance(self.model.get_submodule(place), AttentionPooling):
            return FIRST, PATCHES, "cross"
        sequence = SECOND if self.model.pooling is not None else 0
        return sequence, sequence, "self"

    def prepare_image(
        self, picture: np.ndarray, text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        """The attention of every patch to every patch."""
        if text is not None or prefix is not None:
            raise SettingError("A text beside the picture", "a picture alone: this model classifies it", where="look")
        pixels = self.pixels(picture)
        axes = self.sequence(picture)
        if self.model.pooling is not None:
            axes = [self.patches(picture), TokenRow("query", optional=True).add_words(["query vector"]), *axes]

        def forward() -> ModelOutput:
            logits = self.model(pixels)[0]
            facts = {"classes": self.probabilities(logits)}
            pictures = (Picture.of(picture),)
            return ModelOutput(tuple(axes), logits.log_softmax(-1).max(), facts=facts, pictures=pictures)

        return ForwardPass(max(map(len, axes), default=0), forward)

    def probabilities(self, logits: Tensor) -> list[list[Any]]:
        """The probability of each class, of logits (C,)."""
        names = [f"class {number}" for number in range(len(logits))] if self.labels is None else self.labels.names
        shares = logits.detach().float().softmax(-1).tolist()
        return [[name, share] for name, share in zip(names, shares, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class CaptionerAdapter(ImageModelAdapter):
    """A captioner: the words of a caption look at the patches."""

    @property
    def kind(self) -> Kind:
        return "translates"

    @property
    def alignment_place(self) -> int:
        return getattr(self.model, "alignment_layer", -1)

    def axes_of(self, place: str) -> Axes:
        if place.startswith("encoder"):
            return SECOND + 1, SECOND + 1, "self"
        return (FIRST, FIRST, "self") if place.endswith(".self") else (SECOND, PATCHES, "cross")

    def prepare_image(
        self, picture: np.ndarray, text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        """Every step of a caption: of the given one (teacher forcing), or of one that the model generates."""
        assert self.tokenizer is not None
        tokenizer, pixels = self.tokenizer, self.pixels(picture)
        start, end = (tokenizer.special.need(role) for role in ("start", "end"))
        tokens = self._tokens(pixels, text, prefix)
        target = torch.tensor([[start, *tokens]], device=self.device)

        def decode(number: int) -> str:
            return tokenizer.decode([number]) or tokenizer.token(number)

        axes = self._axes(picture, text, [decode(token) for token in tokens])

        def forward() -> ModelOutput:
            logs, output = self.model(pixels, target)[0].log_probs()[0], [*tokens, end]
            total = logs.gather(1, torch.tensor([output], device=logs.device).mT).sum()
            predicted = PredictedTokens(logs, output, range(len(output)), decode)
            return ModelOutput(axes, total, predicted, pictures=(Picture.of(picture),))

        return ForwardPass(max(map(len, axes)), forward)

    def _tokens(self, pixels: Tensor, text: str | None, prefix: Sequence[int] | None) -> list[int]:
        """The tokens of the caption, without its end."""
        assert self.tokenizer is not None
        special = self.tokenizer.special
        end = special.need("end")
        if text is not None and prefix is None:
            return list(self.tokenizer.encode(text).ids)
        tokens = check_prefix(prefix or [], len(self.tokenizer))
        if end in tokens:
            return tokens[: tokens.index(end)]
        first = torch.tensor([special.need("start")], device=self.device)
        return generate_greedy(self.model, self.model.start(pixels), first, tokens, end, MAX_CAPTION)

    def _axes(self, picture: np.ndarray, text: str | None, words: Sequence[str]) -> tuple[TokenRow, ...]:
        assert self.tokenizer is not None
        start, end = (self.tokenizer.token(self.tokenizer.special.need(role)) for role in ("start", "end"))
        rows = [TokenRow("decoder input", optional=True).add_special(start), TokenRow("decoder output")]
        for row in rows:
            one = None if text is None else self.tokenizer.encode(text)
            if one is not None and text is not None and len(one.pieces) == len(words):
                row.add_text(text, one.pieces, one.offsets, one.words)
            else:
                row.add_words(words)
        rows[1].add_special(end)
        return (self.patches(picture), *rows, *self.sequence(picture))


@dataclass(frozen=True, eq=False, repr=False)
class PhrasePointerAdapter(ImageModelAdapter):
    """A phrase pointer: the words of a phrase look at the patches, and the phrase points at one."""

    def axes_of(self, place: str) -> Axes:
        if place.startswith("encoder"):
            return SECOND + 1, SECOND + 1, "self"
        if place == "pointer":
            return SECOND, PATCHES, "cross"
        return (FIRST, FIRST, "self") if place.endswith(".self") else (FIRST, PATCHES, "cross")

    def prepare_image(
        self, picture: np.ndarray, text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        """Where a phrase points."""
        if text is None or prefix is not None or not text.strip():
            problem = "A phrase pointer needs a phrase beside the picture"
            raise SettingError(problem, where="look", advice='Such as: regard look RUN IMAGE "the red circle".')
        assert self.tokenizer is not None
        special, one, pixels = self.tokenizer.special, self.tokenizer.encode(text), self.pixels(picture)
        cls, sep = special.need("cls"), special.need("sep")
        ids = torch.tensor([[cls, *one.ids, sep]], device=self.device)
        words = TokenRow("phrase").add_special(self.tokenizer.token(cls))
        words.add_text(text, one.pieces, one.offsets, one.words).add_special(self.tokenizer.token(sep))
        pointer = TokenRow("pointer", optional=True).add_words([text])
        axes = (self.patches(picture), words, pointer, *self.sequence(picture))

        def forward() -> ModelOutput:
            logs = self.model(pixels, ids, torch.tensor([ids.size(1)], device=ids.device))[0]
            return ModelOutput(axes, logs.max(), pictures=(Picture.of(picture),))

        return ForwardPass(max(map(len, axes)), forward)
