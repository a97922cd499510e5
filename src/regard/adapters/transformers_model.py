"""Models of transformers, one adapter for each kind of head: none or any, classes, masked tokens, next tokens, and
sequences to sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor

from regard.adapters.base import (
    READ,
    SOURCE,
    WRITTEN,
    Axes,
    Decision,
    Kind,
    ModelAdapter,
    Output,
    Pass,
    Predicted,
    expect_known,
    likeliest,
)
from regard.adapters.bert_inputs import padded
from regard.adapters.case import Case, Example, ReadText, Row, texts_of, words_at
from regard.adapters.readout import Readout, find_readout, only_at, picked, readout_of
from regard.adapters.tokens import NO_WORD, Piece, TokenRow
from regard.errors import SettingError
from regard.text import numbers, spaced

_CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn")  # how models call cross-attention
_GIVEN = ("input_ids", "token_type_ids")  # one text has no padding, so there is no mask to give


@dataclass(frozen=True, eq=False)
class TransformersAdapter(ModelAdapter):
    """A model of transformers with its tokenizer. It attends as it was loaded where that can be captured (sdpa,
    regard), and through "regard" while it is borrowed where it cannot."""

    model: Any
    tokenizer: Any
    name: str = "model"
    description: str = ""
    writes: int = 0

    @property
    def decides(self) -> Decision:
        raise SettingError(
            f"a {type(self.model).__name__}, which decides nothing",
            "a model with a head that says classes or words",
            where="audit",
            advice="Load it as one for sequence classification, masked words or language modelling.",
        )

    def prepare(
        self, text: str | Mapping[str, Tensor], other: str | None = None, prefix: Sequence[int] | None = None
    ) -> Pass:
        """A text, with a second one or a translation; or inputs that are tensors, for models of other things."""
        if isinstance(text, Mapping):
            return self._of_tensors(text)
        self._expect_tokenizer("look")
        begun = expect_known(prefix or (), self.model.get_input_embeddings().weight.size(0))
        return self._of_text(text, other, begun)

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or str(self.tokenizer.convert_ids_to_tokens(number))

    def input_ids(self, rows: Sequence[Row]) -> Tensor:
        return self._padded(rows)[0]

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> Pass:
        given = self._encoded(text, other)
        ids, axis = given["input_ids"][0], self._axis("text", text, other)

        def forward() -> Output:
            said = self.model(**given)
            return Output((axis,), self._target(said, ids), self._predicted(said, ids), self._judged(said))

        return Pass(len(ids), forward)

    def _of_tensors(self, inputs: Mapping[str, Tensor]) -> Pass:
        """Inputs of which only their number is known: patches of a picture, frames of a sound."""
        name = _patches if "pixel_values" in inputs else lambda count: [str(n) for n in range(count)]

        def forward() -> Output:
            said = self.model(**inputs)
            classes = getattr(said, "logits", None)
            target = classes.log_softmax(-1).max() if classes is not None and classes.dim() == 2 else None
            facts = {"kind": "reads", **self._judged(said)}
            return Output(None, target, facts=facts, unnamed=lambda count: TokenRow("inputs").written(name(count)))

        return Pass(max((one.size(1) for one in inputs.values() if one.dim() == 2), default=1), forward)

    def _target(self, said: Any, ids: Tensor) -> Tensor | None:
        """ln p of the likeliest class, or of what is likeliest at masks."""
        if not hasattr(said, "logits"):
            return None
        logs = said.logits[0].float().log_softmax(-1)
        if logs.dim() == 1:
            return cast(Tensor, logs.max())
        masked = ids == self._mask
        return logs[masked].max(-1).values.sum() if bool(masked.any()) else None

    def _predicted(self, said: Any, ids: Tensor) -> Predicted | None:
        return None

    def _judged(self, said: Any) -> dict[str, Any]:
        """Each class with its probability, where a model says classes."""
        logits = getattr(said, "logits", None)
        logs = None if logits is None else logits[0].detach().float().log_softmax(-1)
        if logs is None or logs.dim() != 1 or len(logs) < 2:
            return {}
        names = self.model.config.id2label
        return {"classes": [[str(names[at]), share] for at, share in enumerate(logs.exp().tolist())]}

    @property
    def _mask(self) -> int:
        """The id of the mask; -1 where there is none."""
        found = getattr(self.tokenizer, "mask_token_id", None)
        return -1 if found is None else int(found)

    @property
    def _pad(self) -> int:
        pad = self.model.config.pad_token_id
        return 0 if pad is None else int(pad)

    def _expect_tokenizer(self, where: str) -> None:
        if self.tokenizer is None:
            raise SettingError("no tokenizer", "transformers' own", where=where, advice="Pass tokenizer=.")

    def _expect_short(self, count: int, where: str) -> None:
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and count > longest:
            raise SettingError(f"a text of {count} tokens", f"at most {longest}, which it reads", where=where)

    def _encoded(self, text: str, other: str | None) -> dict[str, Tensor]:
        found = self.tokenizer(text, other, return_tensors="pt")
        count = found["input_ids"].size(1)
        self._expect_short(count, "look")
        if not count:
            raise SettingError("a text without tokens", "at least one", where="look")
        return {name: found[name].to(self.model.device) for name in _GIVEN if name in found}

    def _axis(self, name: str, text: str, other: str | None) -> TokenRow:
        """Tokens with their places in the text, where the tokenizer tells them."""
        if not getattr(self.tokenizer, "is_fast", False):
            return TokenRow(name).written([self.label(int(one)) for one in self.tokenizer(text, other)["input_ids"]])
        found = self.tokenizer(text, other, return_offsets_mapping=True)
        row, texts, last, start, first = TokenRow(name), (text, other or ""), -1, 0, 0
        each = zip(found["input_ids"], found["offset_mapping"], found.sequence_ids(0), found.word_ids(0), strict=True)
        for number, (a, b), which, word in each:
            token = self.tokenizer.convert_ids_to_tokens(number)
            if which is None:
                row.special(token)
                continue
            if which != last:
                row.segment, last, first = which, which, row.next_word
                start = row.join(texts[which])
            while a < b and texts[which][a].isspace():
                a += 1
            row.add([Piece(texts[which][a:b] or token, (start + a, start + b), _counted(word, first))])
        return row

    def _read(self, example: Example) -> ReadText:
        """The row of a text or of two."""
        self._expect_tokenizer("audit")
        text, other = texts_of(example)
        fast = getattr(self.tokenizer, "is_fast", False)
        found = self.tokenizer(text, other, return_offsets_mapping=fast, return_special_tokens_mask=True)
        ids, special = found["input_ids"], found["special_tokens_mask"]
        self._expect_short(len(ids), "audit")
        words = [-1] * len(ids)
        if fast:
            inside = words_at(text, found["offset_mapping"])
            words = [word if which == 0 else -1 for word, which in zip(inside, found.sequence_ids(0), strict=True)]
        segments = tuple(found["token_type_ids"]) if "token_type_ids" in found else ()
        row = Row(tuple(ids), tuple(not one for one in special), segments)
        return ReadText(row, tuple(self.tokenizer.convert_ids_to_tokens(ids)), tuple(words))

    def _padded(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        return padded([row.ids for row in rows], self._pad, self.model.device)

    def _batch(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Tensor]:
        """What the model is called with, and the length of each row (B,)."""
        ids, lengths = self._padded(rows)
        real = torch.arange(ids.size(1), device=ids.device) < lengths.unsqueeze(1)
        given = {"input_ids": ids, "attention_mask": real.long()}
        if rows[0].segments:
            given["token_type_ids"] = padded([row.segments for row in rows], 0, ids.device)[0]
        return given, lengths

    def _log_probs_at(self, given: dict[str, Tensor], at: Tensor) -> Tensor:
        """ln p (B, V) at one position (B,) of each row."""
        with only_at(self.model.get_output_embeddings(), at):
            said = self.model(**given).logits
        return picked(said, at).float().log_softmax(-1)

    def _generated(self, most: int, **given: Tensor) -> Tensor:
        """Greedy decoding of at most so many new tokens."""
        how = {"max_new_tokens": most, "do_sample": False, "num_beams": 1}
        pad = self.model.config.pad_token_id
        how["pad_token_id"] = self.model.config.eos_token_id if pad is None else pad
        found: Tensor = self.model.generate(**given, **how)
        return found


@dataclass(frozen=True, eq=False)
class TransformersClassifier(TransformersAdapter):
    """...ForSequenceClassification."""

    @property
    def decides(self) -> Decision:
        return "class"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        return self._read(example).class_case(example, number, self._class_id)

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        given, _ = self._batch(rows)
        return cast(Tensor, self.model(**given).logits.float().log_softmax(-1))

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        return readout_of(self._readout, rows)

    def label(self, number: int) -> str:
        return str(self.model.config.id2label.get(number, f"class {number}"))

    @cached_property
    def _readout(self) -> Readout:
        return find_readout(self, self._read("a b c").row)

    def _class_id(self, label: str) -> int:
        names = {str(name): int(at) for at, name in self.model.config.id2label.items()}
        if label in names:
            return names[label]
        if label.isdecimal() and int(label) < self.model.config.num_labels:
            return int(label)
        raise SettingError(f"the label {label!r}", f"one of {', '.join(names)}, or its number", where="audit")


@dataclass(frozen=True, eq=False)
class TransformersMaskedLM(TransformersAdapter):
    """...ForMaskedLM."""

    @property
    def kind(self) -> Kind:
        return "fills" if self._mask >= 0 else "reads"

    @property
    def decides(self) -> Decision:
        return "hidden word"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        read, mask = self._read(example), self._mask
        if mask < 0:
            raise SettingError("a tokenizer without a mask token", "one that has it", where="audit")
        return read.masked_token_case(number, chance, mask, str(self.tokenizer.convert_ids_to_tokens(mask)))

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        given, _ = self._batch(rows)
        return self._log_probs_at(given, torch.tensor(self.readout_position("", rows), device=self.model.device))

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int]:
        return [row.ids.index(self._mask) for row in rows]

    def _predicted(self, said: Any, ids: Tensor) -> Predicted | None:
        places = (ids == self._mask).nonzero().squeeze(-1).tolist()
        if not places:
            return None
        logs = torch.stack([said.logits[0, at].float().log_softmax(-1) for at in places])
        return Predicted(logs, logs.argmax(-1).tolist(), places, self.label)


@dataclass(frozen=True, eq=False)
class TransformersCausalLM(TransformersAdapter):
    """...ForCausalLM; `writes`: how many tokens it adds to what it is given."""

    @property
    def kind(self) -> Kind:
        return "continues"

    @property
    def decides(self) -> Decision:
        return "next word"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        return self._read(example).next_token_case(number, chance)

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        given, lengths = self._batch(rows)
        return self._log_probs_at(given, lengths - 1)

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int]:
        return [len(row.ids) - 1 for row in rows]

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> Pass:
        given = self._encoded(text, other)
        read = given["input_ids"]
        first = read.size(1)
        if self.writes or prefix:
            given = {"input_ids": self._continued(read, prefix)}
        ids = given["input_ids"][0]
        new = ids[first:].tolist()
        axis = self._axis("text", text, other).written([self.label(token) for token in new])

        def forward() -> Output:
            said = self.model(**given)
            logs = said.logits[0].float().log_softmax(-1)
            start = first - 1 if new else 0
            target = logs[start:-1].gather(1, ids[start + 1 :].unsqueeze(-1)).sum()
            if not new:
                return Output((axis,), target, facts=self._judged(said))
            before = said.logits[0, first - 1 : len(ids) - 1].float().log_softmax(-1)
            return Output((axis,), target, Predicted(before, new, range(first, len(ids)), self.label))

        return Pass(len(ids), forward)

    def _continued(self, read: Tensor, prefix: list[int]) -> Tensor:
        begun = torch.cat((read, read.new_tensor([prefix])), 1) if prefix else read
        more = max(0, self.writes - len(prefix))
        return self._generated(more, input_ids=begun, attention_mask=torch.ones_like(begun)) if more else begun

    def _judged(self, said: Any) -> dict[str, Any]:
        """What could come next."""
        logits = getattr(said, "logits", None)
        if logits is None or logits[0].dim() != 2:
            return super()._judged(said)
        return {"next": likeliest(logits[0].detach().float().log_softmax(-1)[-1], self.label)}


@dataclass(frozen=True, eq=False)
class TransformersSeq2Seq(TransformersAdapter):
    """An encoder and a decoder. `words`: of how many words of each translation decisions are asked for."""

    words: int = 2

    @property
    def kind(self) -> Kind:
        return "translates"

    @property
    def decides(self) -> Decision:
        return super().decides if self.model.get_output_embeddings() is None else "next word of the translation"

    def axes_of(self, place: str) -> Axes:
        if any(name in place for name in _CROSS):
            return WRITTEN, SOURCE, "cross"
        return (READ, READ, "self") if "decoder" in place else (SOURCE, SOURCE, "self")

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        source, target = texts_of(example)
        read = self._read(source)
        row = read.row
        if target is None:
            given = torch.tensor([row.ids], device=self.model.device)
            every = torch.ones_like(given)
            said = self._generated(2 * len(row.ids) + 10, input_ids=given, attention_mask=every)[0, 1:].tolist()
        else:
            said = self.tokenizer(text_target=target)["input_ids"]
        ends = self.tokenizer.all_special_ids
        steps = [at for at, token in enumerate(said) if token not in ends]
        found = []
        for at in sorted(chance.sample(steps, min(self.words, len(steps)))):
            begun = Row(row.ids, row.free, row.segments, (self._start, *said[:at]))
            found.append(Case(number, begun, read.tokens, said[at]))
        return found

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        given, _ = self._batch(rows)
        given["decoder_input_ids"], counts = padded([row.written for row in rows], self._pad, self.model.device)
        return self._log_probs_at(given, counts - 1)

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        return None if self.attends_from_text(place) else [len(row.written) - 1 for row in rows]

    def word_numbers(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """The word between spaces that each token of the source and of the target belongs to."""
        return self._words(source, "text"), self._words(target, "text_target")

    @property
    def _start(self) -> int:
        start = self.model.config.decoder_start_token_id
        return int(self.model.config.bos_token_id if start is None else start)

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> Pass:
        given, start = self._encoded(text, None), self._start
        if other is not None and not prefix:
            said = self.tokenizer(text_target=other)["input_ids"]
        else:
            begun = torch.tensor([[start, *prefix]], device=self.model.device)
            most = 2 * given["input_ids"].size(1) + 10
            ended = prefix and prefix[-1] == self.model.config.eos_token_id
            said = prefix if ended else self._generated(most, **given, decoder_input_ids=begun)[0, 1:].tolist()
        target = torch.tensor([[start, *said[:-1]]], device=self.model.device)
        spelled = [self.label(token) for token in (start, *said)]
        axes = (
            self._axis("source", text, None),
            TokenRow("target, read").special(spelled[0]).written(spelled[1:-1]),
            TokenRow("target, written").written(spelled[1:]),
        )

        def forward() -> Output:
            found = self.model(**given, decoder_input_ids=target)
            if not hasattr(found, "logits"):
                return Output(axes)
            logs = found.logits[0].float().log_softmax(-1)
            total = logs.gather(1, logs.new_tensor([said]).long().mT).sum()
            return Output(axes, total, Predicted(logs, said, range(len(said)), self.label))

        return Pass(max(given["input_ids"].size(1), target.size(1)), forward)

    def _words(self, text: str, side: str) -> list[int]:
        def encode(some: str, **how: bool) -> Any:
            return self.tokenizer(**{side: some}, **how)

        found = encode(text, return_special_tokens_mask=True)
        special = [bool(one) for one in found["special_tokens_mask"]]
        if getattr(self.tokenizer, "is_fast", False):
            places = numbers(spaced(text), encode(text, return_offsets_mapping=True)["offset_mapping"])
        else:  # it tells no places, but pieces never reach over a space
            sizes = [len(encode(word, add_special_tokens=False)["input_ids"]) for word in text.split()]
            inside = iter([number for number, size in enumerate(sizes) for _ in range(size)])
            if sum(sizes) != special.count(False):
                came = f"{special.count(False)} pieces of a text whose words have {sum(sizes)}"
                raise SettingError(came, "a tokenizer that cuts words one by one", where="align")
            places = [NO_WORD if one else next(inside) for one in special]
        return [NO_WORD if one else place for one, place in zip(special, places, strict=True)]


def _counted(word: int | None, first: int) -> int:
    return NO_WORD if word is None else first + word


def _patches(count: int) -> list[str]:
    """Names for the patches of a square picture and what stands before them."""
    side = int((count - 1) ** 0.5)
    before = count - side * side
    return (
        ["[CLS]"][:before]
        + [f"[{n}]" for n in range(1, before)]
        + [f"{r},{c}" for r in range(side) for c in range(side)]
    )
