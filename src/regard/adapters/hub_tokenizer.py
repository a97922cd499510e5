"""Tokenizers of Hugging Face folders: transformers' AutoTokenizer, fast and slow ones, and their tokens as an axis."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from regard.adapters.base import ModelAdapter
from regard.adapters.encoder import EncoderAdapter
from regard.adapters.token_row import NO_WORD, Piece, TokenRow
from regard.adapters.translator import TranslatorAdapter
from regard.bounded_files import expect_readable_folder
from regard.errors import CheckpointError, CheckpointWarning, RegardError, SettingError
from regard.hub import has_transformers, quiet_transformers, read_config, reason_of, refusals
from regard.runs import TOKENIZER
from regard.text import expect_valid, load_engine, rust_errors

_FILES = (  # any of them makes a folder one with a tokenizer
    "tokenizer.json tokenizer_config.json vocab.json vocab.txt merges.txt spiece.model sentencepiece.bpe.model"
    " sentencepiece.model tokenizer.model source.spm vocab-src.json prophetnet.tokenizer bpe.codes"
).split()
_SPACE = "▁"  # SentencePiece's sign of a space before a piece


def load_hub_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder, by transformers; None where there is none. No code of the folder is run."""
    if not any((folder / name).exists() for name in _FILES):
        return None
    expect_readable_folder(folder, CheckpointError)
    if (folder / TOKENIZER).exists():
        expect_valid(folder / TOKENIZER, CheckpointError)
    from transformers import AutoTokenizer

    with quiet_transformers(), refusals(folder, "load the tokenizer of this folder"):
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        needed = {str(name) for name in found.vocab_files_names.values()}
    if needed and not any((folder / name).exists() for name in needed):
        problem = f"The tokenizer has no vocabulary: there is none of {', '.join(sorted(needed))}"
        raise CheckpointError(problem, where=f"{folder}")
    if not getattr(found, "is_fast", False) or not (folder / TOKENIZER).exists() or _splits_as_its_file(found, folder):
        return found
    return _from_file(folder, type(found).__name__)


def _from_file(folder: Path, kind: str) -> Any:
    """The tokenizer that tokenizer.json describes, where the class that transformers chose, `kind`, splits texts in
    another way: it takes the vocabulary from the file, and not all else."""
    from transformers import PreTrainedTokenizerFast

    with quiet_transformers(), refusals(folder, "load the tokenizer of this folder"):
        found = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    if not _splits_as_its_file(found, folder):
        problem = f"transformers splits texts in another way than {TOKENIZER} says"
        raise CheckpointError(problem, where=f"{folder}", advice="Pass tokenizer= in Python.")
    warnings.warn(
        f"{folder}: the tokenizer is that of {TOKENIZER}; transformers' {kind} splits texts in another way",
        CheckpointWarning,
        stacklevel=4,
    )
    return found


def _splits_as_its_file(tokenizer: Any, folder: Path) -> bool:
    """Whether a tokenizer gives the ids that its tokenizer.json says, of a sentence and of words that it knows."""
    engine = load_engine(folder / TOKENIZER)
    engine.no_truncation()
    known = sorted(one for one in tokenizer.get_vocab() if one.isalpha())
    text = " ".join(["The cat didn't see 12 dogs.", *known[:: max(1, len(known) // 40)]])
    given: list[int] = tokenize(tokenizer, text, add_special_tokens=False)["input_ids"]
    with rust_errors(f"{folder / TOKENIZER}"):
        ids: list[int] = engine.encode(text, add_special_tokens=False).ids
    return given == ids


def as_its_tokenizer(found: ModelAdapter, folder: Path) -> ModelAdapter:
    """The adapter of a model of ours that was converted from a folder, if it reads texts as the tokenizer of that
    folder writes them: with the same tokens before, after and between texts. Else it is refused."""
    config, encode = read_config(folder), _encoder_of(folder)
    first, second = "The cat", "a Dog"
    one, two = ([int(number) for number in found.tokenizer.encode(text).ids] for text in (first, second))
    before, after = found.special_tokens
    advice = "Pass the folder instead of the model: then its own tokenizer reads the text (this needs transformers)."
    if len(found.tokenizer) > config.need("vocab_size"):
        raise SettingError(f"The tokenizer of {folder} has tokens that the model lacks", where="look", advice=advice)
    fits = encode(first, None)[0] == [*before, *one, *after]
    if isinstance(found, TranslatorAdapter):
        start = config.get("decoder_start_token_id", config.get("bos_token_id"))
        fits = fits and found.tokenizers[-1].special.start == start
    if not fits:
        problem = (
            f"The tokenizer of {folder} adds other special tokens than regard's {type(found.model).__name__} reads"
        )
        raise SettingError(problem, where="look", advice=advice)
    if not isinstance(found, EncoderAdapter):
        return found
    ids, segments = encode(first, second)
    own = [0] * len([*before, *one, *after]) + [1] * len([*two, *after])
    as_ours = segments == own or config.get("type_vocab_size", 0) < 2
    if as_ours and ids == [*before, *one, *after, *two, *after]:
        return found
    return replace(found, pairs_refused=f"The tokenizer of {folder} joins two texts in a way of its own. {advice}")


def _encoder_of(folder: Path) -> Callable[[str, str | None], tuple[list[int], list[int]]]:
    """Texts to ids and segments, special tokens included, by the tokenizer of a folder with a tokenizer.json."""

    def with_transformers(text: str, other: str | None) -> tuple[list[int], list[int]]:
        found = tokenize(tokenizer, text, other)
        ids = list(found["input_ids"])
        return ids, list(found["token_type_ids"]) if "token_type_ids" in found else [0] * len(ids)

    def alone(text: str, other: str | None) -> tuple[list[int], list[int]]:
        with rust_errors(f"{folder / TOKENIZER}"):
            found = engine.encode(text, other)
        return list(found.ids), list(found.type_ids)

    if has_transformers():
        tokenizer = load_hub_tokenizer(folder)
        return with_transformers
    engine = load_engine(folder / TOKENIZER)
    return alone


def tokenize(tokenizer: Any, text: str, other: str | None = None, *, target: bool = False, **how: Any) -> Any:
    """What a tokenizer of transformers makes of a text, or of two; `target`: as the text of a decoder."""
    try:
        with rust_errors("look"):
            return tokenizer(text_target=text, **how) if target else tokenizer(text, other, **how)
    except RegardError:
        raise
    except Exception as error:  # tokenizers raise errors of many kinds
        problem = f"The {type(tokenizer).__name__} cannot tokenize this text ({reason_of(error)})"
        raise SettingError(problem, where="look") from error


def vocabulary_size(embedding: object) -> int | None:
    """The rows of an embedding; None where tokens are embedded in another way."""
    return embedding.num_embeddings if isinstance(embedding, nn.Embedding) else None


def expect_embedded(tokenizer: Any, ids: Sequence[int], size: int | None, where: str) -> None:
    """Refuse a text with a token that the model has no embedding of."""
    beyond = next((one for one in ids if size is not None and not 0 <= one < size), None)
    if beyond is not None:
        token = tokenizer.convert_ids_to_tokens(int(beyond))
        raise SettingError(
            f"The model has no embedding of the token {token!r} of this text: its id is {beyond}, and the embedding "
            f"has {size} rows",
            where=where,
            advice="Is this the tokenizer that the model was trained with?",
        )


def token_axis(tokenizer: Any, name: str, text: str, other: str | None = None, *, target: bool = False) -> TokenRow:
    """The tokens of a text, with their spans in it where the tokenizer gives offsets."""
    if getattr(tokenizer, "is_fast", False):
        return _axis_with_spans(tokenizer, name, text, other, target)
    found = tokenize(tokenizer, text, other, target=target, return_special_tokens_mask=True)
    row = TokenRow(name)
    tokens = tokenizer.convert_ids_to_tokens(found["input_ids"])
    for token, special in zip(tokens, found["special_tokens_mask"], strict=True):
        _ = row.add_special(token) if special else row.add_words([plain_piece(token)])
    return row


def plain_piece(token: str) -> str:
    """A piece without the sign of a space before it, as spans of a text show it.

    >>> plain_piece("▁cat"), plain_piece("▁")
    ('cat', '▁')
    """
    return token.removeprefix(_SPACE) or token


def _axis_with_spans(tokenizer: Any, name: str, text: str, other: str | None, target: bool) -> TokenRow:
    found = tokenize(tokenizer, text, other, target=target, return_offsets_mapping=True)
    row, texts, last, start, first = TokenRow(name), (text, other or ""), -1, 0, 0
    each = zip(found["input_ids"], found["offset_mapping"], found.sequence_ids(0), found.word_ids(0), strict=True)
    for number, (a, b), which, word in each:
        token = tokenizer.convert_ids_to_tokens(number)
        if which is None:
            row.add_special(token)
            continue
        if which != last:
            row.segment, last, first = which, which, row.next_word
            start = row.append_text(texts[which])
        while a < b and texts[which][a].isspace():
            a += 1
        word = NO_WORD if word is None else first + word
        row.add_pieces([Piece(texts[which][a:b] or plain_piece(token), (start + a, start + b), word)])
    return row
