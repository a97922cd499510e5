"""Adapters of Hugging Face transformers models: without a head, sequence classification, masked LM, causal LM, seq2seq.

Each runs a model on a text through the model's own tokenizer, and names the tokens along its attention maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor

from regard.adapters.base import (
    DECODER_INPUT,
    DECODER_OUTPUT,
    SOURCE,
    Axes,
    Decision,
    ForwardPass,
    Kind,
    ModelAdapter,
    ModelOutput,
    PredictedTokens,
    check_prefix,
    top_tokens,
)
from regard.adapters.bert_inputs import pad_ids
from regard.adapters.case import Case, EncodedText, Example, InputRow, texts_of, word_ids_at
from regard.adapters.readout import Readout, find_readout, gather_positions, readout_positions, restrict_to_positions
from regard.adapters.tensor_inputs import KnownPositions, count_rows, describe_inputs, expect_row, longest_input
from regard.adapters.token_row import NO_WORD, Piece, TokenRow
from regard.errors import SettingError, unknown
from regard.text import whitespace_words, word_indices

_CROSS_ATTENTION_NAMES = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn")  # modules of transformers
_INPUT_NAMES = ("input_ids", "token_type_ids")  # one text has no padding, so it needs no attention mask


@dataclass(frozen=True, eq=False, repr=False)
class TransformersAdapter(ModelAdapter):
    """A model of transformers with its tokenizer; the base class of the adapters below, and the adapter of models
    without a head.

    While an adapter borrows the model, it attends through "regard", unless its own attention implementation can be
    captured (sdpa, regard).
    """

    model: Any
    tokenizer: Any
    name: str = "model"
    description: str = ""
    max_new_tokens: int = 0

    @property
    def decision(self) -> Decision:
        raise SettingError(
            f"A {type(self.model).__name__} has no head, so it predicts nothing that can be tested",
            where="audit",
            advice="Load it for sequence classification, masked language modelling or causal language modelling.",
        )

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        """A forward pass over a text, with a second one or a translation."""
        self._expect_tokenizer("look")
        tokens = check_prefix(prefix or (), self.model.get_input_embeddings().weight.size(0))
        return self._of_text(text, other, tokens)

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or str(self.tokenizer.convert_ids_to_tokens(number))

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        return self._pad_rows(rows)[0]

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given = self._encode(text, other)
        ids, axis = given["input_ids"][0], self._axis("text", text, other)

        def forward() -> ModelOutput:
            output = self.model(**given)
            return ModelOutput((axis,), self._target(output, ids), self._predicted(output, ids), self._facts(output))

        return ForwardPass(len(ids), forward)

    def prepare_tensors(self, inputs: Mapping[str, Tensor], row: int = 0) -> ForwardPass:
        """Images, audio, or ids of a batch of texts."""
        rows = count_rows(inputs)
        expect_row(row, rows)

        def forward() -> ModelOutput:
            output = self.model(**inputs)
            logits = getattr(output, "logits", None)
            by_row = logits is not None and logits.size(0) == rows
            target = logits[row].log_softmax(-1).max() if logits is not None and by_row and logits.dim() == 2 else None
            facts = {
                "inputs": describe_inputs(inputs),
                **(TransformersAdapter._facts(self, output, row) if by_row else {}),
            }
            known = KnownPositions(self.model, inputs, row, self.tokenizer)
            return ModelOutput((), target, facts=facts | {"kind": "reads"}, rows=rows, known_axis=known.axis)

        return ForwardPass(longest_input(inputs), forward)

    def _target(self, output: Any, ids: Tensor) -> Tensor | None:
        """ln p of the most likely class, or of the most likely tokens at masks."""
        if not hasattr(output, "logits"):
            return None
        logs = output.logits[0].float().log_softmax(-1)
        if logs.dim() == 1:
            return cast(Tensor, logs.max())
        masked = ids == self._mask
        return logs[masked].max(-1).values.sum() if bool(masked.any()) else None

    def _predicted(self, output: Any, ids: Tensor) -> PredictedTokens | None:
        return None

    def _facts(self, output: Any, row: int = 0) -> dict[str, Any]:
        """The probability of each class, of a model that predicts classes, for one row."""
        logits = getattr(output, "logits", None)
        logs = None if logits is None else logits[row].detach().float().log_softmax(-1)
        if logs is None or logs.dim() != 1 or len(logs) < 2:
            return {}
        names = self.model.config.id2label
        return {"classes": [[str(names[at]), share] for at, share in enumerate(logs.exp().tolist())]}

    @property
    def _mask(self) -> int:
        """The id of the mask token; -1 where there is none."""
        found = getattr(self.tokenizer, "mask_token_id", None)
        return -1 if found is None else int(found)

    @property
    def _pad(self) -> int:
        pad = self.model.config.pad_token_id
        return 0 if pad is None else int(pad)

    def _expect_tokenizer(self, where: str) -> None:
        if self.tokenizer is None:
            raise SettingError("This model has no tokenizer", where=where, advice="Pass tokenizer=, transformers' own.")

    def _expect_length(self, count: int, where: str) -> None:
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and count > longest:
            expected = f"at most {longest}, the maximum length of this model"
            raise SettingError(f"a text of {count} tokens", expected, where=where)

    def _encode(self, text: str, other: str | None) -> dict[str, Tensor]:
        found = self.tokenizer(text, other, return_tensors="pt")
        count = found["input_ids"].size(1)
        self._expect_length(count, "look")
        if not count:
            raise SettingError("The text has no tokens", where="look")
        return {name: found[name].to(self.model.device) for name in _INPUT_NAMES if name in found}

    def _axis(self, name: str, text: str, other: str | None) -> TokenRow:
        """The tokens with their spans in the text, where the tokenizer has offsets."""
        if not getattr(self.tokenizer, "is_fast", False):
            return TokenRow(name).add_words([self.label(int(one)) for one in self.tokenizer(text, other)["input_ids"]])
        found = self.tokenizer(text, other, return_offsets_mapping=True)
        row, texts, last, start, first = TokenRow(name), (text, other or ""), -1, 0, 0
        each = zip(found["input_ids"], found["offset_mapping"], found.sequence_ids(0), found.word_ids(0), strict=True)
        for number, (a, b), which, word in each:
            token = self.tokenizer.convert_ids_to_tokens(number)
            if which is None:
                row.add_special(token)
                continue
            if which != last:
                row.segment, last, first = which, which, row.next_word
                start = row.append_text(texts[which])
            while a < b and texts[which][a].isspace():
                a += 1
            row.add_pieces([Piece(texts[which][a:b] or token, (start + a, start + b), _word_id(word, first))])
        return row

    def _encode_example(self, example: Example) -> EncodedText:
        """The row of one text or of two."""
        self._expect_tokenizer("audit")
        text, other = texts_of(example)
        fast = getattr(self.tokenizer, "is_fast", False)
        found = self.tokenizer(text, other, return_offsets_mapping=fast, return_special_tokens_mask=True)
        ids, special = found["input_ids"], found["special_tokens_mask"]
        self._expect_length(len(ids), "audit")
        words = [-1] * len(ids)
        if fast:
            inside = word_ids_at(text, found["offset_mapping"])
            words = [word if which == 0 else -1 for word, which in zip(inside, found.sequence_ids(0), strict=True)]
        segments = tuple(found["token_type_ids"]) if "token_type_ids" in found else ()
        row = InputRow(tuple(ids), tuple(not one for one in special), segments)
        return EncodedText(row, tuple(self.tokenizer.convert_ids_to_tokens(ids)), tuple(words))

    def _pad_rows(self, rows: Sequence[InputRow]) -> tuple[Tensor, Tensor]:
        return pad_ids([row.ids for row in rows], self._pad, self.model.device)

    def _batch(self, rows: Sequence[InputRow]) -> tuple[dict[str, Tensor], Tensor]:
        """The keyword arguments of the model, and the length of each row (B,)."""
        ids, lengths = self._pad_rows(rows)
        real = torch.arange(ids.size(1), device=ids.device) < lengths.unsqueeze(1)
        given = {"input_ids": ids, "attention_mask": real.long()}
        if rows[0].segments:
            given["token_type_ids"] = pad_ids([row.segments for row in rows], 0, ids.device)[0]
        return given, lengths

    def _log_probs_at(self, given: dict[str, Tensor], at: Tensor) -> Tensor:
        """ln p (B, V) at one position (B,) of each row."""
        with restrict_to_positions(self.model.get_output_embeddings(), at):
            logits = self.model(**given).logits
        return gather_positions(logits, at).float().log_softmax(-1)

    def _generate(self, max_new_tokens: int, **given: Tensor) -> Tensor:
        """Greedy decoding."""
        how = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1}
        pad = self.model.config.pad_token_id
        how["pad_token_id"] = self.model.config.eos_token_id if pad is None else pad
        found: Tensor = self.model.generate(**given, **how)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class TransformersClassifier(TransformersAdapter):
    """A sequence classifier (...ForSequenceClassification): its decision is the class of the text."""

    @property
    def decision(self) -> Decision:
        return "class"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        return self._encode_example(example).class_case(example, number, self._class_id)

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        given, _ = self._batch(rows)
        return cast(Tensor, self.model(**given).logits.float().log_softmax(-1))

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        return readout_positions(self._readout, rows)

    def label(self, number: int) -> str:
        return str(self.model.config.id2label.get(number, f"class {number}"))

    @cached_property
    def _readout(self) -> Readout:
        return find_readout(self, self._encode_example("a b c").row)

    def _class_id(self, label: str) -> int:
        names = {str(name): int(at) for at, name in self.model.config.id2label.items()}
        if label in names:
            return names[label]
        if label.isdecimal() and int(label) < self.model.config.num_labels:
            return int(label)
        error = unknown(label, names, kind="label", where="audit")
        raise error.replace(advice=f"{error.advice} The number of a class will do too.")


@dataclass(frozen=True, eq=False, repr=False)
class TransformersMaskedLM(TransformersAdapter):
    """A masked language model (...ForMaskedLM): its decision is the token behind a mask."""

    @property
    def kind(self) -> Kind:
        return "fills" if self._mask >= 0 else "reads"

    @property
    def decision(self) -> Decision:
        return "hidden word"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        text, mask = self._encode_example(example), self._mask
        if mask < 0:
            raise SettingError("The tokenizer has no mask token", where="audit")
        return text.masked_token_case(number, rng, mask, str(self.tokenizer.convert_ids_to_tokens(mask)))

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        given, _ = self._batch(rows)
        return self._log_probs_at(given, torch.tensor(self.readout_position("", rows), device=self.model.device))

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int]:
        return [row.ids.index(self._mask) for row in rows]

    def _predicted(self, output: Any, ids: Tensor) -> PredictedTokens | None:
        positions = (ids == self._mask).nonzero().squeeze(-1).tolist()
        if not positions:
            return None
        logs = torch.stack([output.logits[0, at].float().log_softmax(-1) for at in positions])
        return PredictedTokens(logs, logs.argmax(-1).tolist(), positions, self.label)


@dataclass(frozen=True, eq=False, repr=False)
class TransformersCausalLM(TransformersAdapter):
    """A causal language model (...ForCausalLM): its decision is the next token. `max_new_tokens`: how many tokens it
    generates after a text."""

    @property
    def kind(self) -> Kind:
        return "continues"

    @property
    def decision(self) -> Decision:
        return "next word"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        return self._encode_example(example).next_token_case(number, rng)

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        given, lengths = self._batch(rows)
        return self._log_probs_at(given, lengths - 1)

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int]:
        return [len(row.ids) - 1 for row in rows]

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given = self._encode(text, other)
        prompt = given["input_ids"]
        first = prompt.size(1)
        if self.max_new_tokens or prefix:
            given = {"input_ids": self._continuation(prompt, prefix)}
        ids = given["input_ids"][0]
        new = ids[first:].tolist()
        axis = self._axis("text", text, other).add_words([self.label(token) for token in new])

        def forward() -> ModelOutput:
            output = self.model(**given)
            logs = output.logits[0].float().log_softmax(-1)
            start = first - 1 if new else 0
            target = logs[start:-1].gather(1, ids[start + 1 :].unsqueeze(-1)).sum()
            if not new:
                return ModelOutput((axis,), target, facts=self._facts(output))
            before = output.logits[0, first - 1 : len(ids) - 1].float().log_softmax(-1)
            return ModelOutput((axis,), target, PredictedTokens(before, new, range(first, len(ids)), self.label))

        return ForwardPass(len(ids), forward)

    def _continuation(self, prompt: Tensor, prefix: list[int]) -> Tensor:
        begun = torch.cat((prompt, prompt.new_tensor([prefix])), 1) if prefix else prompt
        more = max(0, self.max_new_tokens - len(prefix))
        return self._generate(more, input_ids=begun, attention_mask=torch.ones_like(begun)) if more else begun

    def _facts(self, output: Any, row: int = 0) -> dict[str, Any]:
        """The most likely next tokens."""
        logits = getattr(output, "logits", None)
        if logits is None or logits[row].dim() != 2:
            return super()._facts(output, row)
        return {"next": top_tokens(logits[row].detach().float().log_softmax(-1)[-1], self.label)}


@dataclass(frozen=True, eq=False, repr=False)
class TransformersSeq2Seq(TransformersAdapter):
    """An encoder-decoder. `words`: how many words of each translation are decisions of the audit."""

    words: int = 2

    @property
    def kind(self) -> Kind:
        return "translates"

    @property
    def decision(self) -> Decision:
        return super().decision if self.model.get_output_embeddings() is None else "next word of the translation"

    def axes_of(self, place: str) -> Axes:
        if any(name in place for name in _CROSS_ATTENTION_NAMES):
            return DECODER_OUTPUT, SOURCE, "cross"
        return (DECODER_INPUT, DECODER_INPUT, "self") if "decoder" in place else (SOURCE, SOURCE, "self")

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        source, target = texts_of(example)
        text = self._encode_example(source)
        row = text.row
        if target is None:
            given = torch.tensor([row.ids], device=self.model.device)
            every = torch.ones_like(given)
            output = self._generate(2 * len(row.ids) + 10, input_ids=given, attention_mask=every)[0, 1:].tolist()
        else:
            output = self.tokenizer(text_target=target)["input_ids"]
        special = self.tokenizer.all_special_ids
        steps = [at for at, token in enumerate(output) if token not in special]
        found = []
        for at in sorted(rng.sample(steps, min(self.words, len(steps)))):
            begun = InputRow(row.ids, row.removable, row.segments, (self._start, *output[:at]))
            found.append(Case(number, begun, text.tokens, output[at]))
        return found

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        given, _ = self._batch(rows)
        decoder_ids = [row.decoder_ids for row in rows]
        given["decoder_input_ids"], counts = pad_ids(decoder_ids, self._pad, self.model.device)
        return self._log_probs_at(given, counts - 1)

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        return None if self.has_text_queries(place) else [len(row.decoder_ids) - 1 for row in rows]

    def word_ids(self, source: str, target: str) -> tuple[list[int], list[int]]:
        return self._word_ids(source, "text"), self._word_ids(target, "text_target")

    @property
    def _start(self) -> int:
        start = self.model.config.decoder_start_token_id
        return int(self.model.config.bos_token_id if start is None else start)

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given, start = self._encode(text, None), self._start
        if other is not None and not prefix:
            tokens = self.tokenizer(text_target=other)["input_ids"]
        else:
            begun = torch.tensor([[start, *prefix]], device=self.model.device)
            most = 2 * given["input_ids"].size(1) + 10
            ended = prefix and prefix[-1] == self.model.config.eos_token_id
            tokens = prefix if ended else self._generate(most, **given, decoder_input_ids=begun)[0, 1:].tolist()
        target = torch.tensor([[start, *tokens[:-1]]], device=self.model.device)
        decoded = [self.label(token) for token in (start, *tokens)]
        axes = (
            self._axis("source", text, None),
            TokenRow("decoder input").add_special(decoded[0]).add_words(decoded[1:-1]),
            TokenRow("decoder output").add_words(decoded[1:]),
        )

        def forward() -> ModelOutput:
            output = self.model(**given, decoder_input_ids=target)
            if not hasattr(output, "logits"):
                return ModelOutput(axes)
            logs = output.logits[0].float().log_softmax(-1)
            total = logs.gather(1, logs.new_tensor([tokens]).long().mT).sum()
            return ModelOutput(axes, total, PredictedTokens(logs, tokens, range(len(tokens)), self.label))

        return ForwardPass(max(given["input_ids"].size(1), target.size(1)), forward)

    def _word_ids(self, text: str, side: str) -> list[int]:
        def encode(some: str, **how: bool) -> Any:
            return self.tokenizer(**{side: some}, **how)

        found = encode(text, return_special_tokens_mask=True)
        special = [bool(one) for one in found["special_tokens_mask"]]
        if getattr(self.tokenizer, "is_fast", False):
            words = word_indices(whitespace_words(text), encode(text, return_offsets_mapping=True)["offset_mapping"])
        else:  # a slow tokenizer gives no offsets; its pieces are counted word by word, since none crosses a space
            sizes = [len(encode(word, add_special_tokens=False)["input_ids"]) for word in text.split()]
            inside = iter([number for number, size in enumerate(sizes) for _ in range(size)])
            if sum(sizes) != special.count(False):
                raise SettingError(
                    f"This tokenizer splits the text into {special.count(False)} tokens, but its words one by one into "
                    f"{sum(sizes)}, so tokens cannot be assigned to words",
                    where="align",
                    advice="Use a fast tokenizer (is_fast), which gives offsets.",
                )
            words = [NO_WORD if one else next(inside) for one in special]
        return [NO_WORD if one else word for one, word in zip(special, words, strict=True)]


def _word_id(word: int | None, first: int) -> int:
    return NO_WORD if word is None else first + word
