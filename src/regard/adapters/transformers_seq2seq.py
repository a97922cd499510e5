"""Adapters of Hugging Face transformers models with an encoder and a decoder: T5, BART, Marian, NLLB ..., and their
classifiers and models without a head, whose decoders read the text once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

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
    ModelOutput,
    PredictedTokens,
)
from regard.adapters.bert_inputs import pad_ids
from regard.adapters.case import Case, Example, InputRow, texts_of
from regard.adapters.hub_tokenizer import expect_embedded, tokenize, vocabulary_size
from regard.adapters.readout import Readout
from regard.adapters.token_row import NO_WORD, TokenRow
from regard.adapters.transformers_model import TransformersAdapter, TransformersClassifier
from regard.errors import SettingError
from regard.hub import reason_of
from regard.text import whitespace_words, word_indices

_CROSS_ATTENTION_NAMES = (
    "encoder_attn",
    "EncDecAttention",
    "crossattention",
    "cross_attn",
    "cross_attention",
)  # modules of transformers


@dataclass(frozen=True, eq=False, repr=False)
class TransformersSeq2Seq(TransformersAdapter):
    """An encoder-decoder that writes a text. `words`: how many words of each translation are decisions of the audit."""

    words: int = 2

    @property
    def kind(self) -> Kind:
        return "translates"

    @property
    def decision(self) -> Decision:
        return "next word of the translation"

    def axes_of(self, place: str) -> Axes:
        return _axes_of(place, DECODER_OUTPUT)

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        source, target = texts_of(example)
        text = self._encode_example(source)
        row = text.row
        inputs, output = self._target_ids(torch.tensor([row.ids], device=self.model.device), target, [])
        special = self.tokenizer.all_special_ids
        steps = [at for at, token in enumerate(output) if token not in special]
        found = []
        for at in sorted(rng.sample(steps, min(self.words, len(steps)))):
            begun = InputRow(row.ids, row.removable, row.segments, tuple(inputs[: at + 1]))
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
        return self._word_ids(source, False), self._word_ids(target, True)

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given = self._encode(text, None)
        inputs, tokens = self._target_ids(given["input_ids"], other, prefix)
        target = torch.tensor([inputs], device=self.model.device)
        decoded = [self.label(token) for token in inputs]
        axes = (
            self._axis("source", text, None),
            TokenRow("decoder input").add_special(decoded[0]).add_words(decoded[1:]),
            TokenRow("decoder output").add_words([self.label(token) for token in tokens]),
        )

        def forward() -> ModelOutput:
            output = self._run(**given, decoder_input_ids=target)
            logs = output.logits[0].float().log_softmax(-1)
            if len(logs) != len(tokens):
                given_for = f"logits for {len(logs)} tokens of {type(self.model).__name__}"
                raise SettingError(given_for, f"for each of the {len(tokens)} that its decoder reads", where="look")
            total = logs.gather(1, logs.new_tensor([tokens]).long().mT).sum()
            return ModelOutput(axes, total, PredictedTokens(logs, tokens, range(len(tokens)), self.label))

        return ForwardPass(max(given["input_ids"].size(1), len(inputs)), forward)

    def _target_ids(self, source: Tensor, other: str | None, prefix: Sequence[int]) -> tuple[list[int], list[int]]:
        """The inputs of the decoder, and the tokens that it should give: of a given text, or of a generated one that
        begins with the prefix."""
        if other is not None:
            tokens = list(prefix) or tokenize(self.tokenizer, other, target=True)["input_ids"]
            self._expect_target(tokens)
            return _shifted(self.model, tokens, self._start), tokens
        begun = [self._start, *prefix]
        most = 2 * source.size(1) + 10 - len(prefix)
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if isinstance(longest, int) and longest > 0:
            most = min(most, longest - len(begun))
        written = begun
        if most > 0 and not (prefix and prefix[-1] in self._ends):
            given = {"input_ids": source, "attention_mask": torch.ones_like(source)}
            given["decoder_input_ids"] = torch.tensor([begun], device=source.device)
            written = self._generate(most, **given)[0].tolist()
        if len(written) < 2:
            raise SettingError("The model generated no token", where="look", advice="Give the second text, TEXT2.")
        return written[:-1], written[1:]

    @property
    def _start(self) -> int:
        return _start_of(self.model)

    def _expect_target(self, tokens: Sequence[int]) -> None:
        self._expect_length(len(tokens), "look")
        if not tokens:
            raise SettingError("The second text has no tokens", where="look")
        expect_embedded(self.tokenizer, tokens, _decoder_vocabulary(self.model), "look")

    def _word_ids(self, text: str, target: bool) -> list[int]:
        def encode(some: str, **how: Any) -> Any:
            return tokenize(self.tokenizer, some, target=target, **how)

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


@dataclass(frozen=True, eq=False, repr=False)
class TransformersTwoStacks(TransformersAdapter):
    """An encoder-decoder that writes no text: without a head, or for question answering. Its decoder reads the second
    text; where there is none, what the model itself gives it, which is the text shifted by one."""

    def axes_of(self, place: str) -> Axes:
        return _axes_of(place, DECODER_INPUT)

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given = self._encode(text, None)
        if other is not None:
            tokens = tokenize(self.tokenizer, other, target=True)["input_ids"]
            expect_embedded(self.tokenizer, tokens, _decoder_vocabulary(self.model), "look")
            shifted = _shifted(self.model, tokens, _start_of(self.model))
            given["decoder_input_ids"] = torch.tensor([shifted], device=self.model.device)
        return _two_stacks(self, self._axis("source", text, None), given)


@dataclass(frozen=True, eq=False, repr=False)
class TransformersSeq2SeqClassifier(TransformersClassifier):
    """A sequence classifier on an encoder-decoder, whose decoder reads the text too."""

    def axes_of(self, place: str) -> Axes:
        return _axes_of(place, DECODER_INPUT)

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        return None  # the last end of the text, in the decoder alone

    @property
    def _readout(self) -> Readout:
        raise NotImplementedError("readout_position says that there are several")

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        return _two_stacks(self, self._axis("source", text, other), self._encode(text, other))


def _two_stacks(adapter: Any, source: TokenRow, given: dict[str, Tensor]) -> ForwardPass:
    """A pass whose decoder inputs are those that the model gives to its decoder."""
    ids = given["input_ids"][0]

    def forward() -> ModelOutput:
        decoder, passed = adapter.model.get_decoder(), list[Tensor]()

        def listen(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            found = named.get("input_ids", args[0] if args else None)
            passed.extend([found] if isinstance(found, Tensor) else [])

        handle = decoder.register_forward_pre_hook(listen, with_kwargs=True)
        try:
            output = adapter._run(**given)
        finally:
            handle.remove()
        if not passed:
            raise SettingError(f"The decoder of this {type(adapter.model).__name__} reads no tokens", where="look")
        decoded = [TransformersAdapter.label(adapter, token) for token in passed[0][0].tolist()]
        row = TokenRow("decoder input").add_special(decoded[0]).add_words(decoded[1:])
        return ModelOutput((source, row), adapter._target(output, ids), facts=adapter._facts(output))

    return ForwardPass(len(ids), forward)


def _axes_of(place: str, queries: int) -> Axes:
    if any(name in place for name in _CROSS_ATTENTION_NAMES):
        return queries, SOURCE, "cross"
    return (DECODER_INPUT, DECODER_INPUT, "self") if "decoder" in place else (SOURCE, SOURCE, "self")


def _start_of(model: Any) -> int:
    """The token that a decoder begins with."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        for settings in (getattr(model, "generation_config", None), model.config):
            found = getattr(settings, name, None)
            if found is not None:
                start = found[0] if isinstance(found, list | tuple) and found else found
                return _expect_token(model, name, start)
    raise SettingError(
        "Neither config.json nor generation_config.json says which token the decoder begins with",
        where="look",
        advice="Set decoder_start_token_id in one of them.",
    )


def _expect_token(model: Any, name: str, token: Any) -> int:
    """A token of a configuration that the decoder has an embedding of."""
    size = _decoder_vocabulary(model)
    if type(token) is not int or token < 0 or (size is not None and token >= size):
        expected = "a whole number" if size is None else f"a token of the decoder, from 0 to {size - 1}"
        raise SettingError(f"{name} = {token!r}", expected, where="look")
    return token


def _shifted(model: Any, tokens: Sequence[int], start: int) -> list[int]:
    """The inputs of a decoder that should give these tokens: shifted by one, as the model itself does in training."""
    prepare: Callable[..., Tensor] | None = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is None:
        return [start, *tokens[:-1]]
    try:
        found: list[int] = prepare(labels=torch.tensor([tokens], device=model.device))[0].tolist()
    except Exception as error:  # as of a model without a padding token
        problem = f"{type(model).__name__} cannot prepare the inputs of its decoder ({reason_of(error)})"
        raise SettingError(problem, where="look") from error
    return found


def _decoder_vocabulary(model: Any) -> int | None:
    """The number of tokens that the decoder has an embedding of; None where it embeds them in another way."""
    for part in (model.get_decoder(), model):
        try:
            found = vocabulary_size(part.get_input_embeddings())
        except (NotImplementedError, AttributeError):
            continue
        if found is not None:
            return found
    return None
