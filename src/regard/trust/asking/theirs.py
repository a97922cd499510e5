"""A model of transformers' asked: for a class, the word behind a mask, the next token, or that of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Literal, cast

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.hub.attention_interface import NAME, enable
from regard.text.examples import Labelled, Translation
from regard.trust.asking.case import Case, Example, Row, tokens_of, words_at
from regard.trust.asking.continuing import SHORTEST
from regard.trust.asking.deciding import Decider, at_decider, find_decider
from regard.trust.asking.lastly import only_at, picked
from regard.trust.asking.padding import padded

Decision = Literal["class", "hidden word", "next word", "next word of the translation"]
ACROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn")  # how models call looking across


@dataclass(frozen=True, eq=False)
class Theirs:
    """It attends through "regard" from now on, so that its weights can be changed. `words`: of how many words of each
    translation it is asked."""

    model: Any
    tokenizer: Any
    name: str
    words: int = 2

    def __post_init__(self) -> None:
        if self.tokenizer is None:
            raise SettingError("no tokenizer", "transformers' own", where="audit", advice="Pass tokenizer=.")
        enable()
        self.model.set_attn_implementation(NAME)

    @cached_property
    def kind(self) -> Decision:
        kind = type(self.model).__name__
        if self.model.config.is_encoder_decoder and self.model.get_output_embeddings() is not None:
            return "next word of the translation"
        if kind.endswith("ForSequenceClassification") and self.model.config.num_labels > 1:
            return "class"
        if self.model.get_output_embeddings() is not None:
            return "next word" if self.model.can_generate() else "hidden word"
        raise SettingError(
            f"a {kind}, which decides nothing",
            "a model with a head that says classes or words",
            where="audit",
            advice="Load it as one for sequence classification, masked words or language modelling.",
        )

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        if self.kind == "next word of the translation":
            return self._translated(example, number, chance)
        row, tokens, words = self._read(example)
        if self.kind == "class":
            known = example if isinstance(example, Labelled) else None
            evidence = tokens_of(words, None if known is None else known.evidence)
            return [Case(number, row, tokens, None if known is None else self._number(known.label), evidence)]
        return (
            self._continued(row, tokens, number, chance)
            if self.kind == "next word"
            else self._hidden(row, tokens, number, chance)
        )

    def say(self, rows: Sequence[Row]) -> Tensor:
        ids, lengths = self._padded(rows)
        real = torch.arange(ids.size(1), device=ids.device) < lengths.unsqueeze(1)
        given: dict[str, Tensor] = {"input_ids": ids, "attention_mask": real.long()}
        if rows[0].segments:
            given["token_type_ids"] = padded([row.segments for row in rows], 0, ids.device)[0]
        at = lengths - 1
        if self._both:
            given["decoder_input_ids"], counts = padded([row.written for row in rows], self._pad, ids.device)
            at = counts - 1
        elif self.kind == "hidden word":
            at = torch.tensor(self._masks(rows), device=ids.device)
        if self.kind == "class":
            return cast(Tensor, self.model(**given).logits.float().log_softmax(-1))
        with only_at(self.model.get_output_embeddings(), at):
            said = self.model(**given).logits
        return picked(said, at).float().log_softmax(-1)

    def ids(self, rows: Sequence[Row]) -> Tensor:
        return self._padded(rows)[0]

    def looks_at_text(self, place: str) -> bool:
        return self.asks_from_text(place) or any(name in place for name in ACROSS)

    def asks_from_text(self, place: str) -> bool:
        return not self._both or "decoder" not in place

    def decider(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        if self._both:
            return None if self.asks_from_text(place) else [len(row.written) - 1 for row in rows]
        if self.kind == "next word":
            return [len(row.ids) - 1 for row in rows]
        return self._masks(rows) if self.kind == "hidden word" else at_decider(self._decider, rows)

    def called(self, number: int) -> str:
        if self.kind == "class":
            return str(self.model.config.id2label.get(number, f"class {number}"))
        return self.tokenizer.decode([number]) or str(self.tokenizer.convert_ids_to_tokens(number))

    @property
    def _both(self) -> bool:
        return self.kind == "next word of the translation"

    @property
    def _pad(self) -> int:
        pad = self.model.config.pad_token_id
        return 0 if pad is None else int(pad)

    @cached_property
    def _decider(self) -> Decider:
        return find_decider(self, self._read("a b c")[0])

    def _padded(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        return padded([row.ids for row in rows], self._pad, self.model.device)

    def _masks(self, rows: Sequence[Row]) -> list[int]:
        return [row.ids.index(self.tokenizer.mask_token_id) for row in rows]

    def _read(self, example: Example) -> tuple[Row, tuple[str, ...], list[int]]:
        text, other = _texts(example)
        fast = getattr(self.tokenizer, "is_fast", False)
        found = self.tokenizer(text, other, return_offsets_mapping=fast, return_special_tokens_mask=True)
        ids, special = found["input_ids"], found["special_tokens_mask"]
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and len(ids) > longest:
            raise SettingError(f"a text of {len(ids)} tokens", f"at most {longest}, which it reads", where="audit")
        words = [-1] * len(ids)
        if fast:
            inside = words_at(text, found["offset_mapping"])
            words = [word if which == 0 else -1 for word, which in zip(inside, found.sequence_ids(0), strict=True)]
        segments = tuple(found["token_type_ids"]) if "token_type_ids" in found else ()
        tokens = tuple(self.tokenizer.convert_ids_to_tokens(ids))
        return Row(tuple(ids), tuple(not one for one in special), segments), tokens, words

    def _number(self, label: str) -> int:
        names = {str(name): int(at) for at, name in self.model.config.id2label.items()}
        if label in names:
            return names[label]
        if label.isdecimal() and int(label) < self.model.config.num_labels:
            return int(label)
        raise SettingError(f"the label {label!r}", f"one of {', '.join(names)}, or its number", where="audit")

    def _continued(self, row: Row, tokens: tuple[str, ...], number: int, chance: Random) -> list[Case]:
        if len(row.ids) <= SHORTEST:
            return []
        cut = chance.randrange(SHORTEST, len(row.ids))
        begun = row.keeping([at < cut for at in range(len(row.ids))])
        asks = Row(begun.ids, (*begun.free[:-1], False), begun.segments)
        return [Case(number, asks, tokens[:cut], row.ids[cut])]

    def _hidden(self, row: Row, tokens: tuple[str, ...], number: int, chance: Random) -> list[Case]:
        mask, ids, expected = self.tokenizer.mask_token_id, list(row.ids), None
        if mask not in ids:
            places = [at for at, free in enumerate(row.free) if free]
            if not places:
                return []
            at = chance.choice(places)
            expected, ids[at] = ids[at], mask
        free = tuple(may and token != mask for may, token in zip(row.free, ids, strict=True))
        shown = tuple(self.tokenizer.convert_ids_to_tokens(ids))
        return [Case(number, Row(tuple(ids), free, row.segments), shown, expected)]

    def _translated(self, example: Example, number: int, chance: Random) -> list[Case]:
        source, target = _texts(example)
        row, tokens, _ = self._read(source)
        start = self.model.config.decoder_start_token_id
        start = self.model.config.bos_token_id if start is None else start
        if target is None:
            given = torch.tensor([row.ids], device=self.model.device)
            how = {"max_new_tokens": 2 * len(row.ids) + 10, "do_sample": False, "num_beams": 1}
            said = self.model.generate(given, attention_mask=torch.ones_like(given), **how)[0, 1:].tolist()
        else:
            said = self.tokenizer(text_target=target)["input_ids"]
        ends = self.tokenizer.all_special_ids
        steps = [at for at, token in enumerate(said) if token not in ends]
        found = []
        for at in sorted(chance.sample(steps, min(self.words, len(steps)))):
            begun = Row(row.ids, row.free, row.segments, (start, *said[:at]))
            found.append(Case(number, begun, tokens, said[at]))
        return found


def _texts(example: Example) -> tuple[str, str | None]:
    if isinstance(example, Labelled):
        return example.text, example.other
    if isinstance(example, Translation):
        return example.source, example.target
    return (example, None) if isinstance(example, str) else example
