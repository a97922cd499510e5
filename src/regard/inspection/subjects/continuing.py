"""A language model looked at: what every token of a text looks back at, and how the text goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.inspection.record.record import Record
from regard.inspection.subjects.gathering import gathered, listened, shares_of, steps_of
from regard.inspection.subjects.rows import Row
from regard.inspection.subjects.subject import ALL, Wanted, expect_known
from regard.models.predictions import Logits
from regard.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Continuing:
    """A language model with its tokenizer; `writes`: how many tokens it adds to what it is given."""

    model: Any
    tokenizer: Tokenizer
    name: str = "language model"
    description: str = ""
    writes: int = 0
    kind: Literal["continues"] = "continues"

    @torch.no_grad()
    def look(
        self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None, wanted: Wanted = ALL
    ) -> Record:
        """The attention of every token to those before it."""
        if other is not None:
            raise SettingError("a second text", "one text for a language model", where="look")
        encoding, end = self.tokenizer.encode(text), self.tokenizer.special.end
        given = list(encoding.ids) or [self.tokenizer.special.need("end")]
        ids = given + self._gone_on(given, expect_known(prefix or (), len(self.tokenizer)), end)
        device = next(self.model.parameters()).device
        with listened(self.model, wanted, len(ids)) as heard:
            logs = _logs(self.model(torch.tensor([ids], device=device)))[0]
            after = torch.tensor(ids[1:], device=device).unsqueeze(-1)
            heard.explain(logs[:-1].gather(1, after)[max(0, len(given) - 1) if ids[len(given) :] else 0 :].sum())
        row = Row("text")
        if encoding.ids:
            row.part(text, encoding.pieces, encoding.offsets, encoding.words)
        else:
            row.special(self.tokenizer.token(given[0]))
        new = ids[len(given) :]
        row.written([self._spell(token) for token in new])
        sides = (row.side(),)
        places = gathered(self.model, heard, wanted, sides, lambda place: (0, 0, "self"))
        steps = steps_of(logs[len(given) - 1 : len(ids) - 1], new, len(given), self._spell) if new else ()
        facts: dict[str, Any] = {"model": self.name, "kind": self.kind}
        if not steps:
            facts["next"] = shares_of(logs[-1], self._spell)
        return Record(sides, places, facts, steps)

    def _gone_on(self, given: list[int], prefix: list[int], end: int | None) -> list[int]:
        """The likeliest tokens after those given, of which the first are told."""
        count = max(self.writes, len(prefix))
        longest = getattr(self.model, "longest", None)
        if longest is not None and len(given) + count > longest:
            if len(given) > longest:
                raise SettingError(f"a text of {len(given)} tokens", f"at most {longest}, which it reads", where="look")
            count = longest - len(given)
        new: list[int] = prefix[:count]
        if not count:
            return new
        device = next(self.model.parameters()).device
        begun = torch.tensor([given], device=device)
        state = self.model.start(begun[:, :-1], torch.tensor([len(given) - 1], device=device))
        last = begun[:, -1]
        for at in range(count):
            logs, _, state = self.model.step(state, last)
            if at >= len(new):
                best = int(logs[0].argmax())
                if best == end:
                    break
                new.append(best)
            last = torch.tensor([new[at]], device=device)
        return new

    def _spell(self, token: int) -> str:
        return self.tokenizer.decode([token]) or self.tokenizer.token(token)


def _logs(said: Any) -> Tensor:
    """ln p (1, T, V) of what comes after each token."""
    if isinstance(said, Tensor):
        return Logits(said).log_probs()
    found: Tensor = said[0].log_probs()
    return found
