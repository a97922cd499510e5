"""Special tokens by role: padding, unknown, start, end, [CLS], [SEP], [MASK], whatever their spelling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from regard.errors import SettingError, unknown


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The id of each role; None where the tokenizer has no token for it.

    >>> SpecialIds(pad=0, end=3).need("end")
    3
    """

    pad: int | None = None
    unknown: int | None = None
    start: int | None = None
    end: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    others: tuple[int, ...] = ()  # special tokens of other roles, such as those of a chat format

    @property
    def all(self) -> frozenset[int]:
        """Every special id."""
        return frozenset({*self.roles.values(), *self.others})

    @property
    def roles(self) -> dict[str, int]:
        """The roles that have a token."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}

    def need(self, role: str) -> int:
        """The id of `role`; an error if the tokenizer has no such token."""
        if role not in ROLES:
            raise unknown(role, ROLES, kind="role", where="SpecialIds.need")
        found = getattr(self, role)
        if found is None:
            raise SettingError(
                f"The tokenizer has no {role!r} token (it has {', '.join(self.roles) or 'none'})",
                where="SpecialIds.need",
                advice=f'Name it when you load the tokenizer: Tokenizer.load(path, roles={{"{role}": "..."}}).',
            )
        return int(found)


ROLES = tuple(field.name for field in fields(SpecialIds) if field.name != "others")

# The spellings of a tokenizer trained here: BERT's names for the roles that BERT introduced.
PLAIN = {
    "pad": "<pad>",
    "unknown": "<unk>",
    "start": "<s>",
    "end": "</s>",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}
BERT = {**PLAIN, "pad": "[PAD]", "unknown": "[UNK]"}

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "unknown": ("<unk>", "[UNK]", "<|unk|>"),
    "start": ("<s>", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>", "<|endoftext|>"),
    "end": ("</s>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}


def find_roles(description: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, str]:
    """The roles of a tokenizer.json, by well-known spellings and by its model and post-processor."""
    found = {
        role: spelling
        for role, spellings in _SPELLINGS.items()
        for spelling in reversed(spellings)
        if spelling in vocabulary
    }
    model, processor = description.get("model") or {}, description.get("post_processor") or {}
    if model.get("unk_token"):
        found["unknown"] = model["unk_token"]
    elif model.get("type") == "Unigram" and model.get("unk_id") is not None:
        found["unknown"] = model["vocab"][model["unk_id"]][0]
    if processor.get("type") in ("BertProcessing", "RobertaProcessing"):
        found |= {"cls": processor["cls"][0], "sep": processor["sep"][0]}
    return found


def special_ids(roles: Mapping[str, str], vocabulary: Mapping[str, int], special: Mapping[str, int]) -> SpecialIds:
    """The id of each role; unknown roles and tokens are refused."""
    for role, spelling in roles.items():
        if role not in ROLES:
            raise unknown(role, ROLES, kind="role", where="Tokenizer roles")
        if spelling not in vocabulary:
            raise unknown(spelling, special, kind=f"special token for {role!r}", where="Tokenizer roles")
    ids = {role: vocabulary[spelling] for role, spelling in roles.items()}
    return SpecialIds(**ids, others=tuple(sorted(set(special.values()) - set(ids.values()))))
