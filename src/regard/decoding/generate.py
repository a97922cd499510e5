"""Text in, text out: how a language model goes on with what was begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from regard.decoding.sampling import Sample
from regard.decoding.search import Rules, Search, Written
from regard.errors import SettingError
from regard.text import Opened, Tokenizer, compacted, opened, pad_rows, spelled

ROWS = 64  # prompts that go on together


@dataclass(frozen=True, eq=False)
class Continuation:
    """One way to go on. `text` stands right behind the prompt, with the space between them where there is one."""

    text: str
    tokens: list[int]  # without the end; beyond the vocabulary where an unknown word of the prompt was copied
    score: float
    finished: bool  # whether the text has come to its end
    weights: Tensor | None = None  # (T, S): what each step looked at, of a model that says so


@torch.no_grad()
def continued(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    search: Search | None = None,
    rules: Rules | None = None,
    attention: bool = False,
) -> list[list[Continuation]]:
    """The continuations of each prompt, best first, of any language model that is a Stepper.

    >>> model, tokenizer = load("runs/gpt"), Tokenizer.load("runs/gpt/tokenizer.json")      # doctest: +SKIP
    >>> [[best]] = continued(model, tokenizer, ["The cat"], Sample(0.8, seed=1))             # doctest: +SKIP

    `search`: Sample() unless told. `rules`: at most 200 tokens, or until the end of the text, unless told; row r is
    prompt r. An empty prompt begins a text: the model gets the end token, which closes the text before.
    """
    search = Sample() if search is None else search
    rules = Rules(tokenizer.special.end, _reach(model, 200), banned=unsaid(tokenizer)) if rules is None else rules
    rules.check(len(prompts))
    copies = getattr(model, "copies", False)
    given = opened(tokenizer, prompts) if copies else [Opened(ids, {}) for ids in tokenizer.ids_batch(prompts)]
    found: list[list[Continuation]] = [[] for _ in prompts]
    for rows in _together([len(one.ids) for one in given], apart=copies):
        ids, lengths = _ids([given[row].ids for row in rows], tokenizer, model)
        _expect_room(model, ids.size(1), rules.longest)
        dense, table = compacted(ids, len(tokenizer))
        first = dense.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)
        state = model.start(dense[:, :-1], lengths - 1)
        written = search(model, state, first, rules.of(rows), attention)
        for row, texts in zip(rows, written, strict=True):
            found[row] = [_told(tokenizer, given[row], text, table) for text in texts]
    return found


def unsaid(tokenizer: Tokenizer) -> list[list[int]]:
    """What no text has: the token that stands for words outside the vocabulary."""
    return [] if tokenizer.special.unknown is None else [[tokenizer.special.unknown]]


def _together(lengths: Sequence[int], apart: bool) -> Iterator[list[int]]:
    """Rows that go on together, of lengths near each other; `apart`: of one length, so that what each looks at, and may
    copy, stands in the columns of its own prompt."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for _, same in groupby(order, key=lambda row: apart and lengths[row]):
        rows = list(same)
        yield from (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))


def _ids(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, model: Any) -> tuple[Tensor, Tensor]:
    """(B, P), P at least 1, and lengths (B,): a text that is not begun yet begins with the end of the one before."""
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    return pad_rows([list(row) or [tokenizer.special.need("end")] for row in rows], 0, device)


def _reach(model: Any, wanted: int) -> int:
    """As far as a model can read, at most `wanted`."""
    longest = getattr(model, "longest", None)
    return wanted if longest is None else min(wanted, longest)


def _expect_room(model: Any, prompt: int, longest: int) -> None:
    """The last token that is written is not read any more."""
    room = _reach(model, prompt + longest - 1) - prompt + 1
    if room < longest:
        raise SettingError(
            f"a prompt of {prompt} tokens and {longest} to write",
            f"a model that reads as many: this one reads {model.longest}",
            where="continued",
            advice=f"There is room to write {room}." if room > 0 else "Shorten the prompt.",
        )


def _told(tokenizer: Tokenizer, given: Opened, text: Written, table: Tensor) -> Continuation:
    size = len(tokenizer)
    tokens = [token if token < size else int(table[token - size]) for token in text.tokens]
    whole = spelled(tokenizer, [*given.ids, *tokens], given.spellings)
    begun = spelled(tokenizer, given.ids, given.spellings)
    said = whole.removeprefix(begun) if whole.startswith(begun) else spelled(tokenizer, tokens, given.spellings)
    return Continuation(said, tokens, text.score, text.finished, text.weights)
