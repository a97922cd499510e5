"""Adapters of Hugging Face transformers models: without a head, sequence classification, masked LM, causal LM.

Each runs a model on a text through the model's own tokenizer, and names the tokens along its attention maps.
transformers_seq2seq.py has the models with an encoder and a decoder.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.adapters.base import (
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
from regard.adapters.hub_tokenizer import expect_embedded, token_axis, tokenize, vocabulary_size
from regard.adapters.readout import Readout, find_readout, gather_positions, readout_positions, restrict_to_positions
from regard.adapters.tensor_inputs import (
    KnownPositions,
    count_rows,
    describe_inputs,
    expect_row,
    is_even,
    longest_input,
)
from regard.adapters.token_row import TokenRow
from regard.adapters.transformers_images import ADVICE, expect_text_alone, image_pass, reads_images
from regard.adapters.vision.crops import HALF
from regard.adapters.vision.images import GivenImage
from regard.adapters.vision.layout import PIXELS, VisionLayout
from regard.adapters.vision.preprocess import default_colours
from regard.errors import RegardError, SettingError, unknown
from regard.hub import reason_of

_INPUT_NAMES = ("input_ids", "token_type_ids")  # one text has no padding, so it needs no attention mask


@dataclass(frozen=True, eq=False, repr=False)
class TransformersAdapter(ModelAdapter):
    """A model of transformers with its tokenizer; the base class of the adapters below, and the adapter of models
    without a head.

    While an adapter borrows the model, it attends through "regard", unless its own attention implementation can be
    captured (sdpa, regard). `processor`: makes tensors of images, and of texts beside them; by default that of the
    folder of the model.
    """

    model: Any
    tokenizer: Any
    name: str = "model"
    description: str = ""
    max_new_tokens: int = 0
    processor: Any = None

    @property
    def decision(self) -> Decision:
        raise SettingError(
            f"A {type(self.model).__name__} has no head, so it predicts nothing that can be tested",
            where="audit",
            advice="Load it for sequence classification, masked language modelling or causal language modelling.",
        )

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        """A forward pass over a text, with a second one or a translation."""
        expect_text_alone(self.model)
        self._expect_tokenizer("look")
        size = self._embedded if prefix else None
        return self._of_text(text, other, list(prefix or ()) if size is None else check_prefix(prefix or (), size))

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.convert_ids_to_tokens(number) or f"[{number}]"

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        return self._pad_rows(rows)[0]

    def _of_text(self, text: str, other: str | None, prefix: list[int]) -> ForwardPass:
        given = self._encode(text, other)
        ids, axis = given["input_ids"][0], self._axis("text", text, other)

        def forward() -> ModelOutput:
            output = self._run(**given)
            return ModelOutput((axis,), self._target(output, ids), self._predicted(output, ids), self._facts(output))

        return ForwardPass(len(ids), forward)

    def _run(self, **given: Tensor) -> Any:
        """The output of the model for one text; whatever it raises becomes a sentence."""
        more: dict[str, Any] = {}
        if (
            "use_cache" in inspect.signature(self.model.forward).parameters
        ):  # with a cache some read the last token alone
            more["use_cache"] = False
        try:
            return self.model(**given, **more)
        except RegardError:
            raise
        except Exception as error:  # models of transformers raise errors of every kind
            problem = f"transformers' {type(self.model).__name__} cannot run on this text ({reason_of(error)})"
            advice = ADVICE if reads_images(self.model) else ""
            raise SettingError(problem, where="look", advice=advice) from error

    def prepare_tensors(self, inputs: Mapping[str, Tensor], row: int = 0) -> ForwardPass:
        """Images, audio, or ids of a batch of texts."""
        rows = count_rows(inputs)
        expect_row(row, rows)
        pictured = any(name in inputs for name in PIXELS)

        def forward() -> ModelOutput:
            output = self.model(**inputs)
            logits = getattr(output, "logits", None)
            classes: Tensor | None = None
            if isinstance(logits, Tensor) and logits.dim() == 2 and logits.size(0) == rows:
                classes = logits[row]
            target = None if classes is None else self._class_target(classes)
            facts = {} if classes is None else self._class_facts(classes)
            facts |= {"inputs": describe_inputs(inputs), "kind": "reads"}
            vision = VisionLayout(self.model, inputs, row, rows, default_colours(self.model) if pictured else HALF)
            known = KnownPositions(self.model, inputs, vision, self.tokenizer)
            return ModelOutput(
                (),
                target,
                facts=facts,
                rows=(rows,),
                even=is_even(inputs, rows),
                known_axis=known.axis,
                pictures=vision.pictures,
                notes=vision.notes,
            )

        return ForwardPass(longest_input(inputs), forward)

    def prepare_images(
        self, images: Sequence[GivenImage], text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        if prefix is not None:
            raise SettingError("Images and a prefix", "images and a text", where="look")
        return image_pass(self, images, text)

    def _target(self, output: Any, ids: Tensor) -> Tensor | None:
        """ln p of the most likely class; of a regression model, its number."""
        logits = getattr(output, "logits", None)
        return None if logits is None or logits.dim() != 2 else self._class_target(logits[0])

    def _class_target(self, logits: Tensor) -> Tensor:
        """The scalar to differentiate of the logits (C,) of one row."""
        values = logits.float()
        return self._class_log_probs(values).max() if self._predicts_classes(values) else values.sum()

    def _predicted(self, output: Any, ids: Tensor) -> PredictedTokens | None:
        return None

    def _facts(self, output: Any) -> dict[str, Any]:
        """The probability of each class, of a model that predicts classes."""
        logits = getattr(output, "logits", None)
        return {} if logits is None or logits.dim() != 2 else self._class_facts(logits[0])

    def _class_facts(self, logits: Tensor) -> dict[str, Any]:
        """The probability of each class, from the logits (C,) of one row."""
        if not self._predicts_classes(logits):
            return {}
        shares = self._class_log_probs(logits.detach().float()).exp().tolist()
        return {"classes": [[self._class_name(at), share] for at, share in enumerate(shares)]}

    def _predicts_classes(self, logits: Tensor) -> bool:
        problem = getattr(self.model.config, "problem_type", None)
        return len(logits) > 1 and problem != "regression"

    def _class_log_probs(self, logits: Tensor) -> Tensor:
        """ln p of each class; where a text can have several, each is decided for itself."""
        if getattr(self.model.config, "problem_type", None) == "multi_label_classification":
            return F.logsigmoid(logits)
        return logits.log_softmax(-1)

    def _class_name(self, number: int) -> str:
        return str((self.model.config.id2label or {}).get(number, f"class {number}"))

    @property
    def _mask(self) -> int:
        """The id of the mask token; -1 where there is none."""
        found = getattr(self.tokenizer, "mask_token_id", None)
        return -1 if found is None else int(found)

    @property
    def _pad(self) -> int:
        pad = getattr(self.model.config, "pad_token_id", None)
        return 0 if pad is None else int(pad)

    @property
    def _embedded(self) -> int | None:
        """The number of tokens that the model has an embedding of; None where it embeds them in another way."""
        try:
            return vocabulary_size(self.model.get_input_embeddings())
        except (NotImplementedError, AttributeError):  # a model without a table of tokens, such as CANINE
            return None

    def _expect_tokenizer(self, where: str) -> None:
        if self.tokenizer is None:
            advice = "Pass tokenizer=, transformers' own, or a folder with the files of one, such as tokenizer.json."
            raise SettingError("This model has no tokenizer", where=where, advice=advice)

    def _expect_length(self, count: int, where: str) -> None:
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if isinstance(longest, int) and 0 < longest < count:  # XLNet says -1: no limit
            expected = f"at most {longest}, the maximum length of this model"
            raise SettingError(f"a text of {count} tokens", expected, where=where)

    def _encode(self, text: str, other: str | None) -> dict[str, Tensor]:
        found = tokenize(self.tokenizer, text, other)
        ids = found["input_ids"]
        self._expect_length(len(ids), "look")
        if not ids:
            raise SettingError("The text has no tokens", where="look")
        expect_embedded(self.tokenizer, ids, self._embedded, "look")
        taken = inspect.signature(self.model.forward).parameters
        return {
            name: torch.tensor([found[name]], device=self.model.device)
            for name in _INPUT_NAMES
            if name in found and (name in taken or "kwargs" in taken)
        }

    def _axis(self, name: str, text: str, other: str | None) -> TokenRow:
        return token_axis(self.tokenizer, name, text, other)

    def _encode_example(self, example: Example) -> EncodedText:
        """The row of one text or of two."""
        self._expect_tokenizer("audit")
        text, other = texts_of(example)
        fast = getattr(self.tokenizer, "is_fast", False)
        how = {"return_offsets_mapping": True} if fast else {}
        found = tokenize(self.tokenizer, text, other, return_special_tokens_mask=True, **how)
        ids, special = found["input_ids"], found["special_tokens_mask"]
        self._expect_length(len(ids), "audit")
        expect_embedded(self.tokenizer, ids, self._embedded, "audit")
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
        how = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1, "return_dict_in_generate": False}
        pad = getattr(self.model.config, "pad_token_id", None)
        how["pad_token_id"] = (*self._ends, 0)[0] if pad is None else pad
        try:
            found: Tensor = self.model.generate(**given, **how)
        except Exception as error:  # as in `_run`
            problem = f"transformers' {type(self.model).__name__} cannot generate after this text ({reason_of(error)})"
            raise SettingError(problem, where="look") from error
        return found

    @property
    def _ends(self) -> tuple[int, ...]:
        """The tokens that end a generated text."""
        settings = getattr(self.model, "generation_config", None) or self.model.config
        found = getattr(settings, "eos_token_id", None)
        return () if found is None else tuple(found) if isinstance(found, list | tuple) else (found,)


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
        return self._class_log_probs(self.model(**given).logits.float())

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        return readout_positions(self._readout, rows)

    def label(self, number: int) -> str:
        return self._class_name(number)

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

    def _target(self, output: Any, ids: Tensor) -> Tensor | None:
        """ln p of the most likely tokens at masks."""
        masked = ids == self._mask
        if not bool(masked.any()):
            return None
        return cast(Tensor, output.logits[0][masked].float().log_softmax(-1).max(-1).values.sum())

    def _facts(self, output: Any) -> dict[str, Any]:
        return {}

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
        self._expect_length(len(ids), "look")
        new = ids[first:].tolist()
        axis = self._axis("text", text, other).add_words([self.label(token) for token in new])

        def forward() -> ModelOutput:
            output = self._run(**given)
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

    def _facts(self, output: Any) -> dict[str, Any]:
        """The most likely next tokens."""
        return {"next": top_tokens(output.logits[0].detach().float().log_softmax(-1)[-1], self.label)}
