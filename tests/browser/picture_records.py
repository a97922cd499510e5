"""Records of pictures for tests of the page: what is seen in them is known."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.adapters.token_row import TokenRow
from regard.attention.attend import attend
from regard.attention.masks import Causal, Everything, Mask
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.place import PlaceRecord, StoredGradients
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import MeasureMap, Record
from regard.inspection.record.token_axis import TokenAxis, to_token_axis
from regard.pictures import PatchGrid, Picture, SceneCorpus, captioned

FAINT = 1e-3  # of the weight of a patch that has nothing to do with a word


def example(seed: int = 0) -> tuple[np.ndarray, list[str], list[np.ndarray]]:
    """A scene: its pixels, the words of its caption, and the region of each."""
    found = SceneCorpus(captioned, 1, split="test", seed=seed)[0]
    words = found.caption.words
    return found.scene.draw(), [word.text for word in words], [found.scene.region(word.objects) for word in words]


def place(
    name: str,
    layer: int,
    scores: Tensor,
    axes: tuple[int, int],
    kind: Literal["self", "cross"] = "self",
    *,
    mask: Mask | None = None,
    norms: bool = False,
) -> PlaceRecord:
    """A place whose weights are the softmax of `scores` (heads, T, S)."""
    heads, T, S = scores.shape
    if T <= S:  # scores = scores x identity
        q, k = scores * S**0.5, torch.eye(S).expand(heads, S, S)
    else:
        q, k = torch.eye(T).expand(heads, T, T) * T**0.5, scores.mT
    return of_queries(name, layer, q, k, axes, kind, mask=mask, norms=norms)


def of_queries(
    name: str,
    layer: int,
    q: Tensor,
    k: Tensor,
    axes: tuple[int, int],
    kind: Literal["self", "cross"] = "self",
    *,
    mask: Mask | None = None,
    norms: bool = False,
) -> PlaceRecord:
    """A place of queries (heads, T, D) and keys (heads, S, D)."""
    (heads, T, _), S = q.shape, k.size(1)
    q, k = q.unsqueeze(0).contiguous(), k.unsqueeze(0).contiguous()
    with torch.no_grad():
        got = attend(q, k, mask=mask or Everything(), observe=record_observe(max(T, S)))
        stored = store_qk([got], None)
        statistics = merge_statistics([got], stored)
    lengths, grads = None, None
    if norms:
        lengths = 0.5 + torch.rand(heads, S)
        values = Int16Tensor.quantize(torch.randn(heads, S, 8))
        grads = StoredGradients(Int16Tensor.quantize(torch.randn(heads, T, 8)), values, tuple(range(heads)))
    return PlaceRecord(name, layer, kind, *axes, heads, statistics, stored, "", lengths, grads)


def with_patches(name: str, before: Sequence[str], grids: Sequence[PatchGrid], after: Sequence[str] = ()) -> TokenAxis:
    """An axis of tokens before the patches, the patches, and tokens after them."""
    patches = {int(t): divmod(n, grid.cols) for grid in grids for n, t in enumerate(grid.tokens.ravel()) if t >= 0}
    labels = [f"patch {row},{col}" for _, (row, col) in sorted(patches.items())]
    row = TokenRow(name, grids=list(grids)).add_special(*before, *labels).add_words(after)
    return to_token_axis(row)


def caption() -> Record:
    """A captioner: words attend across to patches. Head 0 looks at the gold region of each word, head 1 anywhere."""
    torch.manual_seed(1)
    pixels, words, regions = example()
    grid = PatchGrid.raster(8, 8)
    gold = torch.tensor(np.stack([grid.mass(region).ravel() for region in regions]), dtype=torch.float32)
    scores = torch.stack([(gold + FAINT).log(), torch.randn(len(words), 64)])
    axes = (with_patches("picture of 8 x 8 patches", [], [grid]), TokenAxis.from_tokens("caption", words))
    T = len(words)
    places = (
        place("encoder.0.self", 0, torch.randn(2, 64, 64), (0, 0)),
        place("decoder.0.self", 0, torch.randn(2, T, T), (1, 1), mask=Causal()),
        place("decoder.0.cross", 0, scores, (1, 0), "cross"),
    )
    return Record(axes, places, {"model": "tiny captioner"}, pictures=(Picture.of(pixels, "a scene"),))


def vit(side: int = 14, heads: int = 4, layers: int = 3, pixels: np.ndarray | None = None) -> Record:
    """A vision transformer with a class token, two registers and an attention sink (patch 0, 1): patches look around
    themselves and at patches of their colour; the class token at what is bright."""
    rng = np.random.default_rng(2)
    pixels = example(3)[0] if pixels is None else pixels
    grid = PatchGrid.raster(side, side, first=3)
    axis = with_patches(f"picture of {side} x {side} patches", ["[CLS]", "[REG 0]", "[REG 1]"], [grid])
    count = len(axis)
    rows, cols = np.divmod(np.arange(side * side), side)
    distance = (rows[:, None] - rows) ** 2 + (cols[:, None] - cols) ** 2
    means = _patch_means(pixels, side)
    alike = -(((means[:, None] - means) / 60) ** 2).sum(-1)
    places = []
    for layer in range(layers):
        scores = np.zeros((heads, count, count))
        for head in range(heads):
            near = 2.0 + 6 * head
            scores[head, 3:, 3:] = -distance / near + (layer + 1) * 0.4 * alike
            scores[head, :3, 3:] = (means.std(-1) / 25) * (1 + 0.3 * head) + rng.normal(0, 0.3, (3, side * side))
            scores[head, 3:, :3] = -1
            scores[head, :, 4] = scores[head].max(-1) + (1.0 if head == 1 else -3.0)  # patch 0, 1 is a sink of head 1
        places.append(place(f"layers.{layer}.attention", layer, torch.tensor(scores).float(), (0, 0), norms=True))
    picture = Picture.of(pixels, "a scene")
    return Record((axis,), tuple(places), {"model": "tiny ViT"}, pictures=(picture,))


def _patch_means(pixels: np.ndarray, side: int) -> np.ndarray:
    height, width, _ = pixels.shape
    cells = [
        pixels[r * height // side : (r + 1) * height // side, c * width // side : (c + 1) * width // side]
        for r in range(side)
        for c in range(side)
    ]
    return np.stack([cell.reshape(-1, 3).mean(0) for cell in cells])


def measured() -> Record:
    """A vision transformer with stored maps: relevance of the class token, and a map with negative values."""
    record = vit(8, 2, 2)
    torch.manual_seed(3)
    axis = record.axes[0]
    count = len(axis)
    relevance = MeasureMap(
        "relevance", "Chefer relevance", None, 0, 0, torch.rand(count, count).numpy(), (axis.tokens, axis.tokens)
    )
    gradients = MeasureMap(
        "gradients",
        "Attention x gradient",
        record.places[0].name,
        0,
        0,
        torch.randn(count, count).numpy(),
        (axis.tokens, axis.tokens),
    )
    return replace(record, measures=(relevance, gradients))


def mixed() -> Record:
    """A language model that reads a picture and its four parts, then a text; every patch but one has a token."""
    torch.manual_seed(4)
    pixels, words, regions = example(5)
    whole = PatchGrid.raster(4, 4, first=2)
    halves = [(0.0, 0.5), (0.5, 1.0)]
    boxes = [(left, top, right, bottom) for top, bottom in halves for left, right in halves]
    parts = [PatchGrid.raster(4, 4, first=18 + 16 * n, box=box) for n, box in enumerate(boxes)]
    parts[3] = PatchGrid(0, np.where(np.arange(16).reshape(4, 4) == 15, -1, parts[3].tokens), parts[3].box)
    axis = with_patches("text", ["<s>", "look"], [whole, *parts], words)
    count = len(axis)
    scores = torch.randn(2, count, count)
    first = count - len(words)
    for n, region in enumerate(regions):
        for grid in (whole, *parts):
            seen = grid.tokens >= 0
            scores[0, first + n, grid.tokens[seen]] = torch.tensor(4 * grid.mass(region)[seen]).float()
    places = (
        place("layers.0.attn", 0, scores, (0, 0), mask=Causal()),
        place("layers.1.attn", 1, scores, (0, 0), mask=Causal()),
    )
    return Record((axis,), places, {"model": "tiny LLaVA"}, pictures=(Picture.of(pixels, "a scene"),))


def frames() -> Record:
    """A video of four frames in one row; every patch looks at the same patch of all frames."""
    torch.manual_seed(5)
    scenes = [example(seed)[0] for seed in range(4)]
    grids = [PatchGrid.raster(4, 4, first=1 + 16 * n, picture=n) for n in range(4)]
    axis = with_patches("4 frames of 4 x 4 patches", ["[CLS]"], grids)
    count = len(axis)
    at = torch.arange(count - 1) % 16
    scores = torch.randn(2, count, count)
    scores[0, 1:, 1:] += 4.0 * (at[:, None] == at)
    frame = torch.arange(count - 1) // 16
    scores[0, 0, 1:] = frame.float()  # the class token looks at the last frame most
    titles = ["first frame", "<b>second</b>", "", "last " * 40]
    pictures = tuple(Picture.of(pixels, title) for pixels, title in zip(scenes, titles, strict=True))
    return Record((axis,), (place("blocks.0.attn", 0, scores, (0, 0)),), {"model": "tiny video"}, pictures=pictures)


def hostile() -> Record:
    """Markup as a title, as words and as the name of an axis."""
    record = caption()
    bad = "<img src=x onerror=alert(1)>"
    words = TokenAxis.from_tokens(bad, [bad, "</script>", *record.axes[1].tokens[2:]])
    [picture] = record.pictures
    return replace(
        record,
        axes=(record.axes[0], words),
        pictures=(replace(picture, title=bad), replace(picture, title="\u202e" + bad)),
        facts={"model": bad},
    )


def detector() -> Record:
    """Patches that look across at words: the queries are patches, the keys are not."""
    record = caption()
    cross = record.places[2]
    torch.manual_seed(6)
    turned = place("fusion.0.cross", 0, torch.randn(2, cross.S, cross.T) * 2, (0, 1), "cross")
    return replace(record, places=(*record.places[:2], turned), facts={"model": "tiny detector"})


def large() -> Record:
    """More than a thousand patches, twelve heads."""
    torch.manual_seed(7)
    grid = PatchGrid.raster(32, 32, first=1)
    axis = with_patches("picture of 32 x 32 patches", ["[CLS]"], [grid])
    at = torch.cat([torch.zeros(1, 2), torch.cartesian_prod(torch.arange(32.0), torch.arange(32.0))])
    waves = at @ torch.randn(12, 2, 32) / 4
    features = torch.cat([waves.cos(), waves.sin()], -1)
    places = [of_queries(f"layers.{n}.attention", n, features * 2, features * 2, (0, 0), norms=True) for n in range(2)]
    picture = Picture.of(example(3)[0], "a scene")
    return Record((axis,), tuple(places), {"model": "large ViT"}, pictures=(picture,))


def statistics() -> Record:
    """A place without maps."""
    record = caption()
    bare = replace(record.places[2], stored=None, why="its score, Custom, cannot be computed again")
    return replace(record, places=(*record.places[:2], bare))


MAKERS = {make.__name__: make for make in (caption, vit, measured, mixed, frames, hostile, detector, large, statistics)}
ALL = {f"picture-{name}": partial(make) for name, make in MAKERS.items()}
