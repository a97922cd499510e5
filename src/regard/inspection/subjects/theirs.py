"""A model of transformers' looked at: encoders, decoders, both, and whatever takes other inputs than text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.hub.enabling import NAME, enable
from regard.inspection.record.record import Record, Step
from regard.inspection.record.sides import NO_WORD, Side
from regard.inspection.subjects.gathering import gathered, listened, shares_of, steps_of
from regard.inspection.subjects.rows import Row
from regard.inspection.subjects.subject import ALL, Kind, Wanted, expect_known

SOURCE, READ, WRITTEN = range(3)
_ACROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn")  # how models call looking across


@dataclass(frozen=True, eq=False)
class Theirs:
    """A model of transformers' with its tokenizer. It attends as it was loaded where that can be heard (sdpa, regard),
    and through "regard" while it is looked at where it cannot."""

    model: Any
    tokenizer: Any
    name: str = "model"
    description: str = ""
    writes: int = 0

    @property
    def kind(self) -> Kind:
        if self.model.config.is_encoder_decoder:
            return "translates"
        if self._causal:
            return "continues"
        return "fills" if self._says and getattr(self.tokenizer, "mask_token_id", None) is not None else "reads"

    @torch.no_grad()
    def look(
        self,
        text: str | Mapping[str, Tensor],
        other: str | None = None,
        *,
        prefix: Sequence[int] | None = None,
        wanted: Wanted = ALL,
    ) -> Record:
        """A text, with a second one or a translation; or inputs that are tensors, for models of other things."""
        with _audible(self.model, wanted.gradient or wanted.said is not None):
            if isinstance(text, Mapping):
                return self._given(text, wanted)
            if self.tokenizer is None:
                raise SettingError("no tokenizer", "transformers' own", where="look", advice="Pass tokenizer=.")
            begun = expect_known(prefix or (), self.model.get_input_embeddings().weight.size(0))
            if self.model.config.is_encoder_decoder:
                return self._both(text, other, begun, wanted)
            return self._alone(text, other, begun, wanted)

    def _alone(self, text: str, other: str | None, prefix: list[int], wanted: Wanted) -> Record:
        given = self._ids(text, other)
        ids = given["input_ids"]
        count = ids.size(1)
        if self._causal and (self.writes or prefix):
            begun = torch.cat((ids, ids.new_tensor([prefix])), 1) if prefix else ids
            more = max(0, self.writes - len(prefix))
            ids = self._written(begun, more) if more else begun
            given = {"input_ids": ids}
        with listened(self.model, wanted, ids.size(1)) as heard:
            said = self.model(**given)
            heard.explain(self._loudest(said, ids[0], count))
        row = self._row("text", text, other)
        row.written([self._spell(int(token)) for token in ids[0, count:]])
        side = row.side()
        places = gathered(self.model, heard, wanted, (side,), lambda place: (0, 0, "self"))
        steps = self._steps(said, ids[0], count)
        return Record((side,), places, {"model": self.name, "kind": self.kind, **self._judged(said, steps)}, steps)

    def _both(self, text: str, other: str | None, prefix: list[int], wanted: Wanted) -> Record:
        given = self._ids(text, None)
        start = self.model.config.decoder_start_token_id
        start = start if start is not None else self.model.config.bos_token_id
        if other is not None and not prefix:
            said = self.tokenizer(text_target=other)["input_ids"]
        else:
            begun = torch.tensor([[start, *prefix]], device=self.model.device)
            most = 2 * given["input_ids"].size(1) + 10
            ended = prefix and prefix[-1] == self.model.config.eos_token_id
            said = prefix if ended else self._written(begun, most, **given)[0, 1:].tolist()
        target = torch.tensor([[start, *said[:-1]]], device=self.model.device)
        with listened(self.model, wanted, max(given["input_ids"].size(1), target.size(1))) as heard:
            found = self.model(**given, decoder_input_ids=target)
            logs = found.logits[0].float().log_softmax(-1) if hasattr(found, "logits") else None
            heard.explain(None if logs is None else logs.gather(1, logs.new_tensor([said]).long().mT).sum())
        spelled = [self._spell(token) for token in (start, *said)]
        sides = (
            self._row("source", text, None).side(),
            Row("target, read").special(spelled[0]).written(spelled[1:-1]).side(),
            Row("target, written").written(spelled[1:]).side(),
        )
        places = gathered(self.model, heard, wanted, sides, _where)
        steps = () if logs is None else steps_of(logs, said, 0, self._spell)
        return Record(sides, places, {"model": self.name, "kind": self.kind}, steps)

    def _given(self, inputs: Mapping[str, Tensor], wanted: Wanted) -> Record:
        """Inputs of which only their number is known: patches of a picture, frames of a sound."""
        length = max((one.size(1) for one in inputs.values() if one.dim() == 2), default=1)
        with listened(self.model, wanted, length) as heard:
            said = self.model(**inputs)
            classes = getattr(said, "logits", None)
            heard.explain(classes.log_softmax(-1).max() if classes is not None and classes.dim() == 2 else None)
        counts = {heard.calls(place)[0].lse.size(-1) for place in heard}
        if len(counts) != 1:
            raise SettingError(f"places of {sorted(counts)} tokens", "one number everywhere", where="look")
        [count] = counts
        sides = (Side.bare("inputs", _patches(count) if "pixel_values" in inputs else [str(n) for n in range(count)]),)
        places = gathered(self.model, heard, wanted, sides, lambda place: (0, 0, "self"))
        return Record(sides, places, {"model": self.name, "kind": "reads", **self._judged(said, ())})

    def _judged(self, said: Any, steps: Sequence[Step]) -> dict[str, Any]:
        """What a classifier makes of its input, each class with its probability; and what could come next in a text
        that is not written on."""
        logits = getattr(said, "logits", None)
        if logits is None:
            return {}
        logs = logits[0].detach().float().log_softmax(-1)
        if logs.dim() == 1 and len(logs) > 1:
            names = self.model.config.id2label
            return {"classes": [[str(names[at]), share] for at, share in enumerate(logs.exp().tolist())]}
        return {"next": shares_of(logs[-1], self._spell)} if self._causal and not steps and logs.dim() == 2 else {}

    @property
    def _says(self) -> bool:
        return self.model.get_output_embeddings() is not None

    @property
    def _causal(self) -> bool:
        return self._says and self.model.can_generate() and not self.model.config.is_encoder_decoder

    def _ids(self, text: str, other: str | None) -> dict[str, Tensor]:
        found = self.tokenizer(text, other, return_tensors="pt")
        longest = getattr(self.model.config, "max_position_embeddings", None)
        count = found["input_ids"].size(1)
        if longest is not None and count > longest:
            raise SettingError(f"a text of {count} tokens", f"at most {longest}, which it reads", where="look")
        if not count:
            raise SettingError("a text without tokens", "at least one", where="look")
        takes = ("input_ids", "token_type_ids")  # one text has no padding, so there is no mask to hand in
        return {name: found[name].to(self.model.device) for name in takes if name in found}

    def _written(self, begun: Tensor, most: int, **given: Tensor) -> Tensor:
        """What the model writes after tokens that are told, the likeliest each time."""
        how = {"max_new_tokens": most, "do_sample": False, "num_beams": 1}
        pad = self.model.config.pad_token_id
        how["pad_token_id"] = self.model.config.eos_token_id if pad is None else pad
        if given:
            return self.model.generate(**given, decoder_input_ids=begun, **how)
        return self.model.generate(begun, attention_mask=torch.ones_like(begun), **how)

    def _steps(self, said: Any, ids: Tensor, first: int) -> tuple[Step, ...]:
        if not self._says:
            return ()
        if self._causal:
            new = ids[first:].tolist()
            logs = said.logits[0, first - 1 : len(ids) - 1].float().log_softmax(-1)
            return steps_of(logs, new, first, self._spell) if new else ()
        mask = getattr(self.tokenizer, "mask_token_id", None)
        found: list[Step] = []
        for at in [] if mask is None else (ids == mask).nonzero().squeeze(-1).tolist():
            logs = said.logits[0, at].float().log_softmax(-1)
            found += steps_of(logs.unsqueeze(0), [int(logs.argmax())], at, self._spell)
        return tuple(found)

    def _loudest(self, said: Any, ids: Tensor, first: int) -> Tensor | None:
        """ln p of the tokens that were written or, where none were, of those that were read; of the likeliest words
        behind masks; of the likeliest class."""
        if not hasattr(said, "logits"):
            return None
        logs = said.logits[0].float().log_softmax(-1)
        if logs.dim() == 1:
            return logs.max()
        if self._causal:
            from_ = first - 1 if len(ids) > first else 0
            return logs[from_:-1].gather(1, ids[from_ + 1 :].unsqueeze(-1)).sum()
        masked = ids == getattr(self.tokenizer, "mask_token_id", -1)
        return logs[masked].max(-1).values.sum() if bool(masked.any()) else None

    def _row(self, name: str, text: str, other: str | None) -> Row:
        """Tokens with their places in the text, where the tokenizer tells them."""
        if not getattr(self.tokenizer, "is_fast", False):
            return Row(name).written([self._spell(int(one)) for one in self.tokenizer(text, other)["input_ids"]])
        found = self.tokenizer(text, other, return_offsets_mapping=True)
        row, last, first = Row(name), 0, 0
        for number, (span, which, word) in enumerate(
            zip(found["offset_mapping"], found.sequence_ids(0), found.word_ids(0), strict=True)
        ):
            token = self.tokenizer.convert_ids_to_tokens(found["input_ids"][number])
            if which is None:
                row.special(token)
                continue
            whole = text if which == 0 else other or ""
            if which != last:
                row.next_segment()
                last, first = which, 1 + max(row.words, default=-1)
            _add(row, whole, token, span, NO_WORD if word is None else first + word)
        return row

    def _spell(self, token: int) -> str:
        return self.tokenizer.decode([token]) or str(self.tokenizer.convert_ids_to_tokens(token))


def _add(row: Row, text: str, token: str, span: tuple[int, int], word: int) -> None:
    """One piece of a text that is in the row already, or begins now."""
    if not row.text.endswith(text):
        row.text = f"{row.text}\n{text}" if row.text else text
    start = len(row.text) - len(text)
    a, b = span
    while a < b and text[a].isspace():
        a += 1
    row.tokens.append(text[a:b] or token)
    row.spans.append((start + a, start + b))
    row.words.append(word)
    row.segments.append(row.segment)


def their_tokenizer(model: nn.Module, given: Any, folder: Path | None) -> Any:
    """The tokenizer that is given, or the one that lies in the folder of the model; None where there is neither."""
    if given is not None:
        return given
    where = folder or Path(getattr(model.config, "_name_or_path", "") or "nowhere")
    if not (where / "tokenizer_config.json").exists() and not (where / "tokenizer.json").exists():
        return None
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(where, local_files_only=True)


@contextmanager
def _audible(model: Any, gradient: bool) -> Iterator[None]:
    """Let a model attend in a way that can be heard, and for gradients in a way whose averages are ours."""
    own = model.config._attn_implementation
    if own == NAME or (own == "sdpa" and not gradient):
        yield
        return
    enable()
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(own)


def _where(place: str) -> tuple[int, int, Literal["self", "cross"]]:
    if any(name in place for name in _ACROSS):
        return WRITTEN, SOURCE, "cross"
    return (READ, READ, "self") if "decoder" in place else (SOURCE, SOURCE, "self")


def _patches(count: int) -> list[str]:
    """Names for the patches of a square picture and what stands before them."""
    side = int((count - 1) ** 0.5)
    before = count - side * side
    return (
        ["[CLS]"][:before]
        + [f"[{n}]" for n in range(1, before)]
        + [f"{r},{c}" for r in range(side) for c in range(side)]
    )
