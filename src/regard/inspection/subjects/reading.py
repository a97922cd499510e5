"""An encoder looked at: BERT and what stands on it, and classifiers with one learned question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.inspection.record.record import Record, Step
from regard.inspection.record.sides import Side
from regard.inspection.rows import rows_of
from regard.inspection.subjects.gathering import gathered, listened, steps_of
from regard.inspection.subjects.rows import Row
from regard.inspection.subjects.subject import ALL, Wanted
from regard.models.bert import Bert, MaskedLM
from regard.models.heads import OnText
from regard.models.pooling import PoolingClassifier
from regard.models.predictions import Logits
from regard.text.corpora.labels import Labels, Scale
from regard.text.tokenizers.tokenizer import Encoding, Tokenizer

TEXT, QUESTION = range(2)


@dataclass(frozen=True, eq=False)
class Reading:
    """A model of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP], with its tokenizer. One that was trained to say what is
    behind a mask "fills"."""

    model: nn.Module
    tokenizer: Tokenizer
    name: str = "encoder"
    description: str = ""
    labels: Labels | Scale | None = None

    @property
    def kind(self) -> Literal["fills", "reads"]:
        return "fills" if isinstance(self.model, MaskedLM) else "reads"

    @torch.no_grad()
    def look(
        self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None, wanted: Wanted = ALL
    ) -> Record:
        """The attention of every token to every token; behind masks, the words that the model would put there."""
        if prefix is not None:
            raise SettingError("a prefix", "none: this model writes nothing", where="look")
        special = self.tokenizer.special
        texts = [text] if other is None else [text, other]
        encoded = self.tokenizer.encode_batch(texts, specials=True)
        second = None if other is None else encoded[1].ids
        inner = next((one for one in self.model.modules() if isinstance(one, Bert)), None)
        longest = None if inner is None else inner.longest
        rows = rows_of([encoded[0].ids], [second], special, longest, "look")
        rows = rows.to(next(self.model.parameters()).device)
        with listened(self.model, wanted, rows.inputs.size(1)) as heard:
            said, told = self._said(*rows)
            heard.explain(told)
        sides = (self._side(texts, encoded), Side.bare("question", ["what it asks"]))
        places = gathered(self.model, heard, wanted, sides, self._where)
        used = sides if any(place.queries == QUESTION for place in places) else sides[:1]
        facts = {"model": self.name, "kind": self.kind}
        if isinstance(self.model, MaskedLM):
            steps = () if said is None else self._filled(rows.inputs[0], said)
            return Record(used, places, facts, steps)
        return Record(used, places, facts | self._judged(said))

    def _said(self, inputs: Tensor, lengths: Tensor, segments: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """ln p (masks, V) behind each mask, of a model that says such things, or what it says of the text (outputs,);
        and the one number that it said loudest: ln p of the words behind masks, or of the class."""
        if not isinstance(self.model, MaskedLM):
            found = self.model(inputs, lengths, segments)
            if not isinstance(self.model, OnText | PoolingClassifier):
                return None, None
            return found[0].detach(), found.log_softmax(-1).max() if found.size(-1) > 1 else None
        places = (inputs == self.tokenizer.special.need("mask")).flatten().nonzero().squeeze(-1)
        if not len(places):
            self.model.bert(inputs, lengths, segments)
            return None, None
        said: Any = self.model(inputs, lengths, segments, places)
        logs = Logits(said.words).log_probs()
        return logs, logs.max(-1).values.sum()

    def _judged(self, said: Tensor | None) -> dict[str, Any]:
        """What a classifier makes of the text: each class with its probability, or the number that it estimates."""
        if said is None or (len(said) == 1 and not isinstance(self.labels, Scale)):
            return {}
        if isinstance(self.labels, Scale):
            return {"estimate": self.labels.value(float(said))}
        names = [str(number) for number in range(len(said))] if self.labels is None else self.labels.names
        return {
            "classes": [[name, share] for name, share in zip(names, said.float().softmax(-1).tolist(), strict=True)]
        }

    def _filled(self, inputs: Tensor, logs: Tensor) -> tuple[Step, ...]:
        places = (inputs == self.tokenizer.special.need("mask")).nonzero().squeeze(-1).tolist()
        best = logs.argmax(-1).tolist()
        steps = steps_of(logs, best, 0, lambda number: self.tokenizer.decode([number]) or self.tokenizer.token(number))
        return tuple(replace(step, at=place) for step, place in zip(steps, places, strict=True))

    def _side(self, texts: Sequence[str], encoded: Sequence[Encoding]) -> Side:
        cls, sep = (self.tokenizer.token(self.tokenizer.special.need(role)) for role in ("cls", "sep"))
        row = Row("text").special(cls)
        for number, (text, one) in enumerate(zip(texts, encoded, strict=True)):
            if number:
                row.next_segment()
            row.part(text, one.pieces, one.offsets, one.words).special(sep)
        return row.side()

    def _where(self, place: str) -> tuple[int, int, Literal["self", "cross"]]:
        """Who summarises a text looks at it with one question."""
        owner = self.model.get_submodule(place)
        asks = type(owner).__name__ == "AttentionPooling"
        return (QUESTION, TEXT, "cross") if asks else (TEXT, TEXT, "self")
