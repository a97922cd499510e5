"""A translator looked at: what it reads, what it writes, and where each word of that looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from regard.decoding.translate import Translator
from regard.inspection.record.record import Record
from regard.inspection.record.sides import Side
from regard.inspection.subjects.gathering import gathered, listened, steps_of
from regard.inspection.subjects.rows import Row
from regard.inspection.subjects.subject import ALL, Wanted, expect_known
from regard.text.tokenizers.oov import compacted, opened
from regard.text.tokenizers.tokenizer import Tokenizer

SOURCE, READ, WRITTEN = range(3)


@dataclass(frozen=True, eq=False)
class Translating:
    """A translator with its two tokenizers."""

    translator: Translator
    name: str = "translator"
    description: str = ""
    kind: Literal["translates"] = "translates"

    @property
    def model(self) -> nn.Module:
        return cast(nn.Module, self.translator.model)

    @torch.no_grad()
    def look(
        self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None, wanted: Wanted = ALL
    ) -> Record:
        """The attention of every step of a translation: the one that is given, or one that the model writes."""
        model, target = self.translator.model, self.translator.target
        ids, table, spellings = self._source(text)
        lengths = torch.tensor([ids.size(1)])
        tokens = self._tokens(text, other, prefix, ids, lengths, table)
        start, end = target.special.need("start"), target.special.need("end")
        given = torch.tensor([[start, *tokens]], device=ids.device)
        with listened(model, wanted, max(ids.size(1), given.size(1))) as heard:
            logs = model(ids, lengths.to(ids.device), given)[0].log_probs()[0]
            heard.explain(logs.gather(1, torch.tensor([[*tokens, end]], device=ids.device).mT).sum())

        def spell(number: int) -> str:
            own = number if number < len(target) else int(table[number - len(target)])
            return spellings.get(own) or target.decode([own]) or target.token(own)

        sides = self._sides(text, other, [spell(token) for token in tokens])
        places = gathered(model, heard, wanted, sides, _where)
        steps = steps_of(logs, [*tokens, end], 0, spell)
        return Record(sides, places, {"model": self.name, "kind": self.kind}, steps)

    def _source(self, text: str) -> tuple[Tensor, Tensor, dict[int, str]]:
        """ids (1, S) of the source and its end, and what those beyond the vocabulary stand for."""
        tokenizer, model = self.translator.source, self.translator.model
        device = next(iter(model.parameters())).device
        end = tokenizer.special.need("end")
        if not model.copies:
            [ids] = tokenizer.ids_batch([text])
            return torch.tensor([[*ids, end]], device=device), torch.empty(0), {}
        [one] = opened(tokenizer, [text])
        dense, table = compacted(torch.tensor([[*one.ids, end]], device=device), len(tokenizer))
        return dense, table, dict(one.spellings)

    def _tokens(
        self, text: str, other: str | None, prefix: Sequence[int] | None, ids: Tensor, lengths: Tensor, table: Tensor
    ) -> list[int]:
        """The words of the translation, without its end."""
        target = self.translator.target
        if other is not None and prefix is None:
            [one] = self.translator.read([(text, other)])
            return list(one.tokens)
        if not prefix:
            [[best]] = self.translator([text])
            places = {int(number): len(target) + at for at, number in enumerate(table)}
            return [places.get(token, token) if token >= len(target) else token for token in best.tokens]
        return self._gone_on(expect_known(prefix, len(target) + len(table)), ids, lengths)

    def _gone_on(self, tokens: list[int], ids: Tensor, lengths: Tensor) -> list[int]:
        """The likeliest way on from a beginning that somebody chose."""
        model: Any = self.translator.model
        end, most = self.translator.target.special.need("end"), 2 * ids.size(1) + 10
        if end in tokens:
            return tokens[: tokens.index(end)]
        state = model.start(ids, lengths.to(ids.device))
        last = torch.tensor([self.translator.target.special.need("start")], device=ids.device)
        for at in range(most):
            logs, _, state = model.step(state, last)
            if at >= len(tokens):
                best = int(logs[0].argmax())
                if best == end:
                    break
                tokens.append(best)
            last = torch.tensor([tokens[at]], device=ids.device)
        return tokens

    def _sides(self, text: str, other: str | None, words: Sequence[str]) -> tuple[Side, Side, Side]:
        source, target = self.translator.source, self.translator.target
        given = source.encode(text)
        read = Row("source").part(text, given.pieces, given.offsets, given.words)
        read.special(source.token(source.special.need("end")))
        start, end = (target.token(target.special.need(role)) for role in ("start", "end"))
        rows = [Row("target, read"), Row("target, written")]
        rows[0].special(start)
        for row in rows:
            _fill(row, target, other, words)
        rows[1].special(end)
        return read.side(), rows[0].side(), rows[1].side()


def _fill(row: Row, target: Tokenizer, other: str | None, words: Sequence[str]) -> None:
    if other is not None:
        one = target.encode(other)
        if len(one.pieces) == len(words):
            row.part(other, one.pieces, one.offsets, one.words)
            return
    row.written(words)


def _where(place: str) -> tuple[int, int, Literal["self", "cross"]]:
    if place.startswith(("encoder", "reader")):
        return SOURCE, SOURCE, "self"
    return (READ, READ, "self") if place.endswith(".self") else (WRITTEN, SOURCE, "cross")
