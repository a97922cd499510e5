"""Text generation: continuations of prompts by a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from regard.decoding.sampling import Sample
from regard.decoding.search import MAX_SHOWN, Hypothesis, Rules, Search
from regard.errors import SettingError
from regard.text import OovEncoding, Tokenizer, compact_oov, decode_with_oov, encode_with_oov, pad_rows

ROWS = 64  # prompts of a batch


@dataclass(frozen=True, eq=False)
class Continuation:
    """A continuation of a prompt. `text` follows the prompt directly, with the space between them if there is one."""

    text: str
    tokens: list[int]  # without the end; beyond the vocabulary where an unknown word of the prompt was copied
    score: float
    finished: bool  # whether the end token was generated
    weights: Tensor | None = None  # (T, S): the attention of each step, of models that report it

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        shown = self.text if len(self.text) <= MAX_SHOWN else f"{self.text[: MAX_SHOWN - 1]}…"
        return f"Continuation({shown!r}, score={self.score:.3f}{state})"


@torch.no_grad()
def generate_text(
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

    `search`: by default Sample(). `rules`: by default at most 200 tokens, or until the end token; row r is prompt r. An
    empty prompt starts a text: the model gets the end token, which separates texts.
    """
    search = Sample() if search is None else search
    rules = (
        Rules(tokenizer.special.end, _max_positions(model, 200), banned=ban_unknown(tokenizer))
        if rules is None
        else rules
    )
    rules.check(len(prompts))
    copies = getattr(model, "copies", False)
    given = (
        encode_with_oov(tokenizer, prompts)
        if copies
        else [OovEncoding(ids, {}) for ids in tokenizer.ids_batch(prompts)]
    )
    found: list[list[Continuation]] = [[] for _ in prompts]
    for rows in _batches([len(one.ids) for one in given], same_length=copies):
        ids, lengths = _pad_prompts([given[row].ids for row in rows], tokenizer, model)
        _expect_room(model, ids.size(1), rules.max_length)
        dense, table = compact_oov(ids, len(tokenizer))
        first = dense.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)
        state = model.start(dense[:, :-1], lengths - 1)
        written = search(model, state, first, rules.select(rows), attention)
        for row, texts in zip(rows, written, strict=True):
            found[row] = [_continuation(tokenizer, given[row], text, table) for text in texts]
    return found


def ban_unknown(tokenizer: Tokenizer) -> list[list[int]]:
    """The banned sequences that keep the unknown token out of generated text."""
    return [] if tokenizer.special.unknown is None else [[tokenizer.special.unknown]]


def _batches(lengths: Sequence[int], same_length: bool) -> Iterator[list[int]]:
    """Batches of rows of similar lengths; `same_length`: of one length, so that the positions each attends to, and may
    copy, are the columns of its own prompt."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for _, same in groupby(order, key=lambda row: same_length and lengths[row]):
        rows = list(same)
        yield from (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))


def _pad_prompts(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, model: Any) -> tuple[Tensor, Tensor]:
    """(B, P), P at least 1, and lengths (B,): an empty prompt becomes the end token, which separates texts."""
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    return pad_rows([list(row) or [tokenizer.special.need("end")] for row in rows], 0, device)


def _max_positions(model: Any, wanted: int) -> int:
    """The maximum length of the model, at most `wanted`."""
    limit = getattr(model, "max_positions", None)
    return wanted if limit is None else min(wanted, limit)


def _expect_room(model: Any, prompt: int, max_length: int) -> None:
    """Refuse texts longer than the model's positions; the last generated token is not an input any more."""
    room = _max_positions(model, prompt + max_length - 1) - prompt + 1
    if room < max_length:
        raise SettingError(
            f"a prompt of {prompt} tokens and max_length={max_length}",
            f"at most {model.max_positions} tokens in all, the positions of this model",
            where="generate_text",
            advice=f"There is room for {room} more." if room > 0 else "Shorten the prompt.",
        )


def _continuation(tokenizer: Tokenizer, given: OovEncoding, text: Hypothesis, table: Tensor) -> Continuation:
    size = len(tokenizer)
    tokens = [token if token < size else int(table[token - size]) for token in text.tokens]
    full = decode_with_oov(tokenizer, [*given.ids, *tokens], given.spellings)
    prompt = decode_with_oov(tokenizer, given.ids, given.spellings)
    if full.startswith(prompt):
        continuation = full.removeprefix(prompt)
    else:
        continuation = decode_with_oov(tokenizer, tokens, given.spellings)
    return Continuation(continuation, tokens, text.score, text.finished, text.weights)
