"""Small random records of every kind, for tests of the page."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from regard.adapters.token_row import NO_SPAN, NO_WORD
from regard.attention.attend import attend
from regard.attention.biases import DenseBias
from regard.attention.masks import Causal, Dense, Everything, Mask
from regard.attention.normalise import Entmax, Normaliser, Sink, Sparsemax
from regard.attention.positions import Alibi
from regard.attention.scores import Additive, ScaledDot, Score
from regard.attention.windows import LocalP
from regard.inspection.record.build_place import merge_slices, merge_statistics, record_observe, store_qk, store_slices
from regard.inspection.record.place import PlaceRecord, StoredGradients, StoredQK
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import GenerationStep, MeasureMap, Record
from regard.inspection.record.sequences import row_slice
from regard.inspection.record.token_axis import TokenAxis

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\u202eright to left\u202c",
    "x" * 10_000,
    "👩🏽‍🚀",
    "\x00",
    "tab\tand\nline",
    "שלום",
    "注意力",
    "\ud800",
    "",
    " ",
    "&amp;\"'",
)


def place(
    name: str,
    layer: int,
    sizes: tuple[int, int, int],
    *,
    width: int = 8,
    key_heads: int | None = None,
    kind: str = "self",
    axes: tuple[int, int] = (0, 0),
    keep: list[int] | None = None,
    norms: bool = False,
    gradients: bool = False,
    score: Score | None = None,
    mask: Mask | None = None,
    bias: object = None,
    window: LocalP | None = None,
    normalise: Normaliser | None = None,
) -> PlaceRecord:
    """Heads, queries and keys of `sizes`; strong enough that some weights are large."""
    heads, T, S = sizes
    q = 2.5 * torch.randn(1, heads, T, width)
    k = 1.5 * torch.randn(1, key_heads or heads, S, width) + 0.5
    how = {"score": score, "mask": mask or Everything(), "bias": bias, "window": window}
    how["normalise"] = normalise
    with torch.no_grad():
        got = attend(q, k, observe=record_observe(max(T, S)), **how)
        stored = store_qk([got], keep)
        seen = merge_statistics([got], stored)
    lengths = 0.5 + torch.rand(heads, S) if norms else None
    grads = _gradients(stored, T, k, width) if gradients else None
    return PlaceRecord(name, layer, kind, *axes, heads, seen, stored, "", lengths, grads)


def _gradients(stored: StoredQK, T: int, k: Tensor, width: int) -> StoredGradients:
    """Random gradients; the values are the keys."""
    output_grads = torch.randn(len(stored.heads), T, width)
    return StoredGradients(Int16Tensor.quantize(output_grads), Int16Tensor.quantize(k[0]), stored.key_heads)


def bert() -> Record:
    """Two texts in one row, words in pieces, patterns and badges."""
    torch.manual_seed(1)
    pieces = "[CLS] the black cat sat quiet ##ly [SEP] un ##believ ##able , she said [SEP]".split()
    words = (NO_WORD, 0, 1, 2, 3, 4, 4, NO_WORD, 5, 5, 5, 6, 7, 8, NO_WORD)
    text, spans = "", []
    for piece, word in zip(pieces, words, strict=True):
        bare = piece.removeprefix("##")
        text += "" if piece.startswith("##") or word == NO_WORD or not text else " "
        spans.append(NO_SPAN if word == NO_WORD else (len(text), len(text) + len(bare)))
        text += "" if word == NO_WORD else bare
    side = TokenAxis("text", text, tuple(pieces), tuple(spans), words, (0,) * 8 + (1,) * 7)
    places = tuple(place(f"encoder.{n}.self", n, (4, 15, 15), norms=True) for n in range(3))
    facts = {
        "model": "tiny BERT",
        "patterns": {"encoder.1.self": ["diagonal", None, "first token", None]},
        "badges": {"encoder.1.self": ["faithful", None, None, None]},
    }
    return Record((side,), places, facts)


def translator() -> Record:
    """Three axes, an encoder, a decoder, and how its translation was written."""
    torch.manual_seed(2)
    source, read = "the black cat sleeps </s>".split(), "<s> le chat noir dort".split()
    written = [*read[1:], "</s>"]
    axes = (
        TokenAxis.from_tokens("source", source),
        TokenAxis.from_tokens("decoder input", read),
        TokenAxis.from_tokens("decoder output", written),
    )
    places = (
        *(place(f"encoder.{n}.self", n, (4, 5, 5)) for n in range(2)),
        place("decoder.0.self", 0, (4, 5, 5), axes=(1, 1), mask=Causal()),
        place("decoder.0.cross", 0, (4, 5, 5), kind="cross", axes=(2, 0)),
        place("decoder.1.self", 1, (4, 5, 5), axes=(1, 1), mask=Causal()),
        place("decoder.1.cross", 1, (4, 5, 5), kind="cross", axes=(2, 0)),
    )
    others = ((90, "un", -1.6), (91, "ce", -2.9), (92, "<script>", -3.5), (93, "il", float("-inf")))
    steps = tuple(
        GenerationStep(at, 10 + at, -0.3, ((10 + at, word, -0.3), *others)) for at, word in enumerate(written)
    )
    return Record(axes, places, {"model": "tiny translator", "kind": "translates"}, steps)


def grouped() -> Record:
    """Causal, four query heads on two key heads, a bias by distance; the text goes on by itself."""
    torch.manual_seed(3)
    tokens = [f"t{n}" for n in range(24)]
    side = TokenAxis.from_tokens("text", tokens)
    places = tuple(
        place(f"blocks.{n}.self", n, (4, 24, 24), key_heads=2, mask=Causal(), bias=Alibi(4), norms=True, gradients=True)
        for n in range(2)
    )
    steps = tuple(GenerationStep(at, at, -0.5, ((at, f"t{at}", -0.5), (99, "other", -1.0))) for at in range(20, 24))
    return Record((side,), places, {"model": "tiny GPT", "kind": "continues"}, steps)


def additive() -> Record:
    """Bahdanau's score across, and Luong's predicted window."""
    torch.manual_seed(4)
    axes = (
        TokenAxis.from_tokens("source", [f"s{n}" for n in range(20)]),
        TokenAxis.from_tokens("target", [f"w{n}" for n in range(12)]),
    )
    places = (
        place("decoder.cross", 0, (1, 12, 20), width=6, kind="cross", axes=(1, 0), score=Additive(6, 10)),
        place("decoder.local", 1, (1, 12, 20), width=6, kind="cross", axes=(1, 0), window=LocalP(6, 3)),
    )
    return Record(axes, places, {"model": "tiny Bahdanau"})


def normalised() -> Record:
    """An attention sink over capped scores, sparsemax, and entmax."""
    torch.manual_seed(9)
    side = TokenAxis.from_tokens("text", [f"w{n}" for n in range(14)])
    capped = {"score": ScaledDot(cap=5.0), "normalise": Sink(torch.tensor([1.0, 0.0, 2.0, -1.0]))}
    places = (
        place("decoder.0.self", 0, (4, 14, 14), key_heads=2, mask=Causal(), **capped),
        place("decoder.1.self", 1, (4, 14, 14), mask=Causal(), normalise=Sparsemax()),
        place("decoder.2.self", 2, (4, 14, 14), normalise=Entmax(1.5), bias=Alibi(4)),
    )
    return Record((side,), places, {"model": "tiny gpt-oss"})


def gaps() -> Record:
    """A mask with gaps, a bias for each pair, queries that see nothing, and heads that were not stored."""
    torch.manual_seed(5)
    table = torch.rand(3, 14, 14) > 0.4
    table[:, 5] = False
    side = TokenAxis.from_tokens("text", [f"g{n}" for n in range(14)])
    places = (
        place("masked", 0, (3, 14, 14), mask=Dense(table)),
        place("biased", 1, (3, 14, 14), bias=DenseBias(torch.randn(3, 14, 14)), keep=[0, 2]),
    )
    return Record((side,), places, {"model": "tiny with gaps"})


def statistics() -> Record:
    """Statistics only."""
    torch.manual_seed(6)
    whole = place("encoder.0.self", 0, (2, 30, 30))
    bare = PlaceRecord(
        whole.name, 0, "self", 0, 0, 2, whole.statistics, None, "its score, Custom, cannot be computed again"
    )
    return Record(
        (TokenAxis.from_tokens("text", [f"n{n}" for n in range(30)]),), (bare,), {"model": "statistics alone"}
    )


def long(count: int = 3000) -> Record:
    """Many tokens."""
    torch.manual_seed(7)
    side = TokenAxis.from_tokens("text", [f"word{n}" for n in range(count)])
    places = (place("encoder.0.self", 0, (2, count, count), width=16),)
    return Record((side,), places, {"model": "long"})


def windows() -> Record:
    """Three windows of a call as one map, with a bias for each pair and gaps of their own; chunks without a bias."""
    torch.manual_seed(11)
    gaps = torch.rand(3, 1, 5, 5) > 0.2
    gaps[1, :, 2] = False
    some = joined("stage.0.attention", "windows", 3, bias=DenseBias(torch.randn(1, 2, 5, 5)), mask=Dense(gaps))
    same = joined("stage.1.attention", "windows", 3, bias=DenseBias(torch.randn(1, 2, 5, 5)))
    chunks = replace(joined("blocks.2.attention", "chunks", 3, mask=Causal()), queries=1, keys=1)
    labels = [f"window {n}, {at}" for n in range(3) for at in range(5)]
    axes = (
        TokenAxis.from_tokens("15 positions of stage in 3 windows", labels),
        TokenAxis.from_tokens("15 positions of blocks", [str(n) for n in range(15)]),
    )
    facts = {"model": "tiny Swin", "inputs": "pixel_values 2 x 3 x 32 x 32", "row": 1, "rows": 2}
    unheard = {f"stage.2.layers.{n}.attention": "<b>MaskUnitAttention</b>" for n in range(2)}
    return Record(axes, (some, same, chunks), facts, unheard=unheard)


def shared() -> Record:
    """One layer that is called three times, with a name that all calls share."""
    torch.manual_seed(12)
    module = "encoder.albert_layer_groups.0.albert_layers.0.attention"
    whole = [place(f"{module}, call {n + 1} of 3", n, (2, 6, 6)) for n in range(3)]
    places = tuple(replace(one, module=module, call=n) for n, one in enumerate(whole))
    return Record((TokenAxis.from_tokens("text", "the cat sleeps on it .".split()),), places, {"model": "tiny ALBERT"})


def joined(name: str, join: Literal["windows", "chunks"], count: int, **how: object) -> PlaceRecord:
    """`count` sequences of one call as one map, two heads, five queries and keys in each."""
    q, k = 2.5 * torch.randn(count, 2, 5, 8), torch.randn(count, 2, 5, 8)
    with torch.no_grad():
        got = attend(q, k, observe=record_observe(5), **how)
        slices = [row_slice(got, row) for row in range(count)]
        stored = store_slices(slices, None, join)
        seen = merge_slices(slices, stored, join)
    note = f"{count} sequences of one call, each seeing its own keys alone"
    return PlaceRecord(name, int(name.split(".")[1]), "self", 0, 0, 2, seen, stored, joined=join, note=note)


def hostile() -> Record:
    """Text with markup and control characters."""
    torch.manual_seed(8)
    count = len(HOSTILE)
    side = TokenAxis.from_tokens("<b>text</b>", HOSTILE)
    places = (place("<img src=x onerror=alert(3)>", 0, (2, count, count)),)
    steps = (GenerationStep(1, 5, -0.5, ((5, HOSTILE[0], -0.5), (6, HOSTILE[2], -2.0))),)
    facts = {"model": "</title><script>alert(4)</script>", "patterns": [["<i>x</i>", HOSTILE[0]]]}
    return Record((side,), places, facts, steps)


def measured() -> Record:
    """Stored attribution maps: of one place, and of the whole model with rows of its own."""
    torch.manual_seed(9)
    made = translator()
    tokens = [side.tokens for side in made.axes]
    zeroing = MeasureMap(
        "value-zeroing", "value zeroing", "encoder.1.self", 0, 0, torch.rand(5, 5).numpy(), (tokens[0], tokens[0])
    )
    # named as a measure that the page computes itself
    whole = MeasureMap("norms", "<i>whole model</i>", None, 1, 0, torch.rand(3, 5).numpy(), (tokens[1], tokens[0]))
    return replace(made, measures=(zeroing, whole))


MAKERS = (measured, bert, translator, grouped, additive, normalised, gaps, statistics, long, hostile, windows, shared)
ALL = {make.__name__: make for make in MAKERS}


def tile(record: Record, number: int, head: int) -> Tensor:
    return record.places[number].tile(head)
