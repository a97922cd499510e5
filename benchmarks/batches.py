"""How quickly batches are planned and made, and how much of them is padding, for every kind of task.

    python benchmarks/batches.py [--quick] [--out out/bench]

The texts are random, their lengths those of short captions in two languages (mean 12 and 11 words, correlation 0.87).
Each kind runs for some seconds in one thread; "plan" is the time of one epoch's plan after the first. Writes
batches.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from run_record import run_record

from regard.text.batches.batch import Batch, BlockBatch, PackedBatch, TranslationBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.collate import AnswerCollator, LabelCollator, TagCollator, TranslationCollator
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenBlocks, TokenStream
from regard.text.batches.masking import Masking, MaskingCollator, WholeWords
from regard.text.batches.next_sentence import NextSentenceCollator, NextSentencePairs
from regard.text.batches.packing import Packing, PackingCollator
from regard.text.batches.plan import Batches, BatchPlan, Collator
from regard.text.batches.seeded_rng import Epoch
from regard.text.corpora.lines import Lines
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.specials import SpecialIds

SPECIAL = SpecialIds(pad=0, unknown=1, start=2, end=3, cls=4, sep=5, mask=6)
VOCABULARY, BUDGET, SIZE = 8000, 4096, 512


def batches(quick: bool = False) -> list[dict[str, Any]]:
    """One row of figures for each kind of batch."""
    examples, seconds = (29_000, 0.3) if quick else (1_000_000, 3.0)
    return [measured(name, plan, collate, seconds) for name, (plan, collate) in kinds(examples).items()]


def kinds(examples: int) -> dict[str, tuple[BatchPlan, Collator[Any]]]:
    random = np.random.default_rng(0)
    lengths = caption_lengths(examples, random)
    source, target = (texts(lengths[:, side], random) for side in (0, 1))
    few = RaggedArray(random.integers(0, 5, size=examples), np.arange(1, examples + 1))
    tags = RaggedArray(random.integers(0, 5, size=len(source.ids)), source.ends)
    word = RaggedArray(np.arange(len(source.ids)) // 2, source.ends)
    spans = np.stack([np.zeros(examples, dtype=np.int64), lengths[:, 1] - 1], axis=1)
    span = RaggedArray(spans.reshape(-1), 2 * np.arange(1, examples + 1))
    sentences = np.arange(0, examples + 1, 20)
    sentences[-1] = examples
    text = Columns({"text": source, "word": word, "label": few, "tag": tags}, sentences)
    masking, whole = Masking(SPECIAL, VOCABULARY), Masking(SPECIAL, VOCABULARY, units=WholeWords())
    stream, lines = TokenStream.plain(text), TokenStream.lines(text, end=3)
    collates: dict[str, Any] = {
        "translation": TranslationCollator(Columns({"source": source, "target": target}), SPECIAL),
        "labels": LabelCollator(text, SPECIAL),
        "tags": TagCollator(text, SPECIAL),
        "answers": AnswerCollator(Columns({"question": source, "passage": target, "span": span}), SPECIAL),
        "masked": MaskingCollator(text, masking),
        "masked, whole words": MaskingCollator(text, whole),
    }
    found: dict[str, tuple[BatchPlan, Collator[Any]]] = {
        name: (Buckets(collate.lengths, BUDGET), collate) for name, collate in collates.items()
    }
    found["sentence pairs, masked"] = (
        NextSentencePairs(text, max_length=128, budget=BUDGET),
        NextSentenceCollator(text, masking),
    )
    found["lanes"] = Lanes(stream, size=32, lanes=BUDGET // 32), BlockCollator(stream)
    found["lanes of closed lines"] = Lanes(lines, size=32, lanes=BUDGET // 32), BlockCollator(lines)
    found["blocks"] = TokenBlocks(stream, size=SIZE, rows=BUDGET // SIZE), BlockCollator(stream)
    packed = PackingCollator(text, SIZE, start=2, end=3)
    found["packed"] = Packing(packed.lengths, SIZE, rows=BUDGET // SIZE), packed
    return found


def measured(name: str, plan: BatchPlan, collate: Collator[Any], seconds: float) -> dict[str, Any]:
    plan(Epoch(0))  # whatever it keeps for later epochs
    start = time.perf_counter()
    planned = plan(Epoch(0, 1))
    planning = time.perf_counter() - start
    made, cells, real = 0, 0, 0
    chosen = Batches(plan, collate)
    len(chosen)  # its own plan is made before the clock starts
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for batch in chosen:
            made, cells, real = made + 1, cells + all_cells(batch), real + real_cells(batch)
            if time.perf_counter() - start >= seconds:
                break
    took = time.perf_counter() - start
    return {
        "kind": name,
        "batches_an_epoch": len(planned),
        "plan_s": planning,
        "batches_per_s": made / took,
        "tokens_per_s": real / took,
        "padding": 1 - real / cells,
    }


def all_cells(batch: Batch) -> int:
    if isinstance(batch, TranslationBatch):
        return batch.source.numel() + batch.target_in.numel()
    return int(batch.inputs.numel())  # type: ignore[attr-defined]


def real_cells(batch: Batch) -> int:
    if isinstance(batch, TranslationBatch):
        return int(batch.source_lengths.sum() + batch.target_lengths.sum())
    if isinstance(batch, PackedBatch):
        return int((batch.documents >= 0).sum())
    return batch.tokens if isinstance(batch, BlockBatch) else int(batch.lengths.sum())  # type: ignore[attr-defined]


def padding() -> dict[str, float]:
    """The share of padding in buckets of 4,096 tokens, for 29,000 captions in two languages: made up, and real ones."""
    lengths = {"29,000 made-up captions": caption_lengths(29_000, np.random.default_rng(0)) + 1}
    folder = Path(os.environ.get("REGARD_DATA", "")) / "multi30k"
    if folder.is_dir():
        words = [[len(line.text.split()) + 1 for line in Lines(folder / f"train.{side}.gz")] for side in ("en", "de")]
        lengths[f"{len(words[0]):,} captions of Multi30k"] = np.array(words).T
    found = {name: Buckets(sizes, BUDGET).padding_share(Epoch(0)) for name, sizes in lengths.items()}
    found |= {f"{name}, sorted by one side alone": one_sided(sizes) for name, sizes in lengths.items()}
    articles = folder.parent / "pretraining" / "enwik8_clean.txt.gz"
    return found | (sentence_pairs(articles) if articles.is_file() else {})


def sentence_pairs(file: Path) -> dict[str, float]:
    """The padding of pairs of Wikipedia's sentences as BERT is taught with, 1.3 pieces a word: what could be gained by
    batches without any."""
    lengths, ends = [], [0]
    for line in Lines(file):
        if not line.text.strip() and len(lengths) > ends[-1]:
            ends.append(len(lengths))
        lengths += [round(1.3 * len(one.split())) for one in re.split(r"(?<=[.!?]) ", line.text) if one.strip()]
    sentences = np.array(lengths[: ends[-1]]).clip(1)
    columns = Columns({"text": texts(sentences, np.random.default_rng(0))}, np.array(ends))
    found = {}
    for limit, budget in ((128, 256 * 128), (512, 64 * 512)):
        fill = NextSentenceCollator(columns, Masking(SPECIAL, VOCABULARY))
        some = [
            batch
            for batch, _ in zip(Batches(NextSentencePairs(columns, limit, budget), fill), range(200), strict=False)
        ]
        waste = 1 - sum(map(real_cells, some)) / sum(map(all_cells, some))
        found[f"{len(sentences):,} sentences of Wikipedia in pairs of up to {limit}, {budget:,} tokens a batch"] = waste
    return found


def one_sided(sizes: np.ndarray) -> float:
    """The padding of both sides in buckets that know the lengths of the first alone."""
    cells = sum(len(rows) * int(sizes[rows].max(0).sum()) for rows in Buckets(sizes[:, 0], BUDGET)(Epoch(0)))
    return 1 - int(sizes.sum()) / cells


def caption_lengths(count: int, random: np.random.Generator) -> np.ndarray:
    shared, own = random.normal(size=(count, 1)), random.normal(size=(count, 2))
    spread = np.exp(0.31 * (np.sqrt(0.87) * shared + np.sqrt(0.13) * own))
    return np.clip(np.round(spread * [11.4, 10.6]), 1, 40).astype(np.int64)


def texts(lengths: np.ndarray, random: np.random.Generator) -> RaggedArray:
    return RaggedArray(random.integers(7, VOCABULARY, size=int(lengths.sum()), dtype=np.uint16), np.cumsum(lengths))


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'kind':<24}{'batches':>9}{'plan s':>9}{'batches/s':>11}{'M tokens/s':>12}{'padding':>9}")
    for row in rows:
        print(
            f"{row['kind']:<24}{row['batches_an_epoch']:>9}{row['plan_s']:>9.2f}{row['batches_per_s']:>11.0f}"
            f"{row['tokens_per_s'] / 1e6:>12.2f}{row['padding']:>9.2%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="29,000 examples and 0.3 s a kind")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    settings = parser.parse_args()
    rows = batches(settings.quick)
    show(rows)
    settings.out.mkdir(parents=True, exist_ok=True)
    (settings.out / "batches.json").write_text(
        json.dumps([run_record("numpy", seeds=[0]), *rows], indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
