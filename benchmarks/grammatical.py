"""How many sentences of a GPT's stories are sentences of the built-in grammar?

    python benchmarks/grammatical.py RUN [--texts 200] [--temperature 1.0]

Each sentence is read by the grammar's own rules (grammar_recogniser.py): is there a way through them that writes it?
How many sentences that the grammar drew are read, and how many of those with two neighbours swapped, stands beside.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from random import Random

from grammar_recogniser import reads

from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.stories import story, story_sentence


def sentences(text: str) -> list[list[str]]:
    """The sentences of a text whose words and signs stand apart; what is left at its end is none."""
    found = [one.split() for one in re.findall(r"[^.?]*[.?]", re.sub(r"\b(Mr|Ms)\s*\.", r"\1_", text))]
    return [[word.replace("_", ".") for word in one] for one in found]


def share(some: list[list[str]]) -> str:
    right = sum(reads(sentence, story_sentence) for sentence in some)
    return f"{right / max(1, len(some)):.1%} of {len(some)}"


def swapped(sentence: list[str], u: Random) -> list[str]:
    place = u.randrange(len(sentence) - 2)
    return [*sentence[:place], sentence[place + 1], sentence[place], *sentence[place + 2 :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=200, help="stories to draw")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    from regard.decoding import Rules, Sample
    from regard.decoding.generate import ban_unknown, generate_text
    from regard.runs import Run
    from regard.text.tokenizers.tokenizer import Tokenizer

    model, tokenizer = Run.open(given.run).model(), Tokenizer.load(given.run / "tokenizer.json")
    rules = Rules(tokenizer.special.end, 120, banned=ban_unknown(tokenizer))
    search = Sample(given.temperature, seed=given.seed)
    texts = [one.text for (one,) in generate_text(model, tokenizer, [""] * given.texts, search, rules)]
    written = [sentence for text in texts for sentence in sentences(text)]
    wrong = [sentence for sentence in written if not reads(sentence, story_sentence)]
    print(texts[0], "\n\nnot read, for example:")
    for sentence in wrong[:10]:
        print(" ", " ".join(sentence))
    right = 1 - len(wrong) / max(1, len(written))
    print(f"\nread by the grammar: {right:.1%} of {len(written)} sentences at temperature {given.temperature}")
    rng = GrammarRng("others")
    real = [list(sentence.source) for _ in range(30) for sentence in story(rng)]
    print(f"sentences that the grammar drew: {share(real)}")
    print(f"those with two neighbours swapped: {share([swapped(one, Random(n)) for n, one in enumerate(real)])}")


if __name__ == "__main__":
    main()
