"""Checks of a tokenizer.json before the `tokenizers` library loads it, and its errors and panics in words.

The library is written in Rust: on a hostile file it can overflow the stack or run out of memory, which ends the
process, or panic, which raises a BaseException. So component types, nesting, counts, ids and growth are bounded before
loading, and every call that can panic stands in `rust_errors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer as Engine

from regard.bounded_files import parse_json, read_text
from regard.errors import RegardError, SettingError, is_rust_panic, unknown

MAX_NESTING = 8  # sequences inside each other
MAX_COMPONENTS = 256  # of a normalizer, pre-tokenizer, decoder or post-processor
MAX_FILE = 128 << 20  # bytes; the largest vocabularies take a quarter of that
MAX_DEPTH = 24  # lists and objects inside each other
MAX_PART = 4 << 20  # characters of anything but vocabulary, merges and added tokens
MAX_PATTERN = 10_000  # characters of a regular expression
MAX_GROWTH = 4_096  # characters that the replacements of a normalizer can make of one
MAX_TEMPLATE = 1_000  # pieces of a post-processor's template
MAX_PADDING = 1 << 20  # tokens to which a text may be padded or truncated
SPARE_IDS = 1 << 16  # ids without a token, beyond one for each token
LISTS = ("normalizers", "pretokenizers", "decoders", "processors")  # the components inside a sequence
TYPES = {
    "normalizer": "BertNormalizer Strip StripAccents NFC NFD NFKC NFKD Sequence Lowercase Nmt Precompiled Replace "
    "Prepend ByteLevel",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Metaspace Whitespace Sequence Split Punctuation "
    "WhitespaceSplit Digits UnicodeScripts FixedLength",
    "post_processor": "RobertaProcessing BertProcessing ByteLevel TemplateProcessing Sequence",
    "decoder": "BPEDecoder ByteLevel WordPiece Metaspace CTC Sequence Replace Fuse Strip ByteFallback",
    "model": "BPE WordPiece WordLevel Unigram",
}


def load_engine(path: Path) -> Engine:
    """The tokenizer of the `tokenizers` library that a tokenizer.json describes; raises OSError where there is none."""
    return parse_engine(_read_checked(path), f"{path}")


def _read_checked(path: Path) -> str:
    """The text of a tokenizer.json that passes all checks."""
    text = read_text(path, SettingError, MAX_FILE)
    try:
        data = parse_json(text, f"{path}", SettingError, MAX_DEPTH)
    except SettingError as error:
        raise error.replace(advice="A tokenizer.json is expected here.") from error
    check_description(data, f"{path}")
    return text


def parse_engine(text: str, where: str) -> Engine:
    """The tokenizer that the text of a tokenizer.json describes, which has been checked."""
    with rust_errors(where):
        try:
            return Engine.from_str(text)
        except Exception as error:  # the library raises no class of its own
            raise SettingError(f"The file is not a valid tokenizer.json ({error})", where=where) from error


@contextmanager
def rust_errors(where: str) -> Iterator[None]:
    """Turns a panic of the `tokenizers` library, which is no Exception, into a SettingError."""
    try:
        yield
    except BaseException as error:
        if not is_rust_panic(error):
            raise
        reason = str(error).strip().partition("\n")[0] or "it gave no reason"
        raise SettingError(
            f"The tokenizer cannot process this text: the `tokenizers` library stopped ({reason})",
            where=where,
            advice="A regular expression in tokenizer.json may backtrack without end.",
        ) from error


def check_description(data: Any, where: str) -> None:
    """Refuse a tokenizer.json with unknown components, or beyond the bounds above."""
    if not isinstance(data, Mapping):
        raise SettingError(f"a JSON {type(data).__name__}", "an object", where=where)
    model = data.get("model")
    if not isinstance(model, Mapping):
        raise SettingError("The file is not a valid tokenizer.json (it has no model)", where=where)
    kind = model.get("type")
    if kind is not None and kind not in TYPES["model"].split():  # old files name none
        raise unknown(kind, TYPES["model"].split(), kind="tokenizer model", where=where)
    _check_sizes(data, model, where)
    size = _check_ids(model, data.get("added_tokens") or [], where)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        components = list(_components(data.get(name), name, where))
        _check_growth(components, name, where)
        for one in components:
            _check_patterns(one, name, where)
            _check_template(one, size, where)
    _check_lengths(data, where)


def _check_sizes(data: Mapping[str, Any], model: Mapping[str, Any], where: str) -> None:
    """Refuse vocabularies and merges that are no flat lists, and much of anything else: the library copies it often."""
    vocabulary, merges = model.get("vocab"), model.get("merges") or []
    if isinstance(vocabulary, list) and not all(_is_pair(one, str, (int, float)) for one in vocabulary):
        raise SettingError("a vocab with an entry that is no piece and its score", "[piece, score]", where=where)
    if not isinstance(merges, list) or not all(isinstance(one, str) or _is_pair(one, str, str) for one in merges):
        raise SettingError("merges with an entry that is no pair", "pairs of pieces", where=where)
    rest = {name: part for name, part in model.items() if name not in ("vocab", "merges")}
    for name, part in (*data.items(), ("model", rest)):
        if (name != "model" or part is rest) and name != "added_tokens":
            size = len(json.dumps(part))
            if size > MAX_PART:
                raise SettingError(f"a {name} of {size:,} characters", f"at most {MAX_PART:,}", where=where)


def _is_pair(value: Any, first: Any, second: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], first) and isinstance(value[1], second)


def _components(found: Any, name: str, where: str, depth: int = 0, seen: list[int] | None = None) -> Iterator[Any]:
    """The components of a normalizer, pre-tokenizer ..., those inside sequences too; their types are known."""
    seen = [0] if seen is None else seen
    if found is None:
        return
    if not isinstance(found, Mapping):
        raise SettingError(f"a {name} that is a JSON {type(found).__name__}", "an object", where=where)
    seen[0] += 1
    if depth > MAX_NESTING or seen[0] > MAX_COMPONENTS:
        problem = f"a {name} of more than {MAX_COMPONENTS} components, or {MAX_NESTING} sequences inside each other"
        raise SettingError(problem, "fewer", where=where)
    known = TYPES[name].split()
    if found.get("type") not in known:
        raise unknown(found.get("type"), known, kind=name, where=where)
    yield found
    for inner in LISTS:
        parts = found.get(inner)
        if parts is not None and not isinstance(parts, list):
            raise SettingError(f"{inner} that are a JSON {type(parts).__name__}", "a list", where=where)
        for part in parts or ():
            yield from _components(part, name, where, depth + 1, seen)


def _check_patterns(component: Mapping[str, Any], name: str, where: str) -> None:
    pattern = component.get("pattern")
    given = pattern.get("Regex") if isinstance(pattern, Mapping) else None
    if given is None:
        return
    if not isinstance(given, str) or len(given) > MAX_PATTERN:
        expected = f"text of at most {MAX_PATTERN:,} characters"
        raise SettingError(f"a regular expression of the {name}", expected, where=where)
    with rust_errors(where):
        try:
            Regex(given)
        except Exception as error:  # the library raises no class of its own
            problem = f"The {name} has an invalid regular expression, {given[:60]!r} ({error})"
            raise SettingError(problem, where=where) from error


def _check_growth(components: list[Mapping[str, Any]], name: str, where: str) -> None:
    """Refuse replacements which, one after the other, make a text grow without bound."""
    growth = 1.0
    for one in components:
        if one.get("type") == "Replace" and isinstance(content := one.get("content"), str):
            pattern = one.get("pattern")
            least = len(pattern.get("String") or "") if isinstance(pattern, Mapping) else 0
            growth *= max(1.0, len(content) / least if least else 1 + len(content))  # a regex may match nothing
        if one.get("type") == "Prepend":
            growth += len(str(one.get("prepend", "")))
    if growth > MAX_GROWTH:
        problem = f"a {name} whose replacements make up to {growth:.0f} characters of one"
        raise SettingError(problem, f"at most {MAX_GROWTH:,}", where=where)


def _check_ids(model: Mapping[str, Any], added: Any, where: str) -> int:
    """Refuse ids far beyond the number of tokens, for which a model would need as many rows; one more than the last."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, (Mapping, list)):
        raise SettingError("The file is not a valid tokenizer.json (its model has no vocab)", where=where)
    if not isinstance(added, list) or not all(isinstance(one, Mapping) for one in added):
        raise SettingError("added_tokens that are no list of objects", "one", where=where)
    ids = [*(vocabulary.values() if isinstance(vocabulary, Mapping) else ()), *(one.get("id") for one in added)]
    for one in ids:
        if type(one) is not int or one < 0:
            raise SettingError(f"the id {one!r} of a token", "a whole number", where=where)
    if not ids and not vocabulary:
        raise SettingError("The file is not a valid tokenizer.json (its vocab has no token)", where=where)
    size = max([*ids, len(vocabulary) - 1]) + 1
    most = 2 * (len(vocabulary) + len(added)) + SPARE_IDS
    if size > most:
        problem = f"a token with the id {size - 1:,} in a vocabulary of {len(vocabulary) + len(added):,} tokens"
        raise SettingError(problem, f"an id below {most:,}", where=where)
    return size


def _check_template(component: Mapping[str, Any], size: int, where: str) -> None:
    """Refuse special tokens of a post-processor that the vocabulary lacks, and endless templates."""
    for name in ("single", "pair"):
        if isinstance(given := component.get(name), list) and len(given) > MAX_TEMPLATE:
            raise SettingError(f"a template of {len(given):,} pieces", f"at most {MAX_TEMPLATE:,}", where=where)
    special = component.get("special_tokens")
    each = [one.get("ids") for one in special.values() if isinstance(one, Mapping)] if isinstance(special, dict) else []
    each += [[pair[1]] for name in ("sep", "cls") if isinstance(pair := component.get(name), list) and len(pair) == 2]
    for ids in each:
        if not isinstance(ids, list) or len(ids) > MAX_TEMPLATE:
            raise SettingError("special_tokens of a post_processor", "ids of each", where=where)
        beyond = next((one for one in ids if type(one) is not int or not 0 <= one < size), None)
        if beyond is not None:
            problem = f"a post_processor with the token id {beyond!r}"
            raise SettingError(problem, f"one from 0 to {size - 1}, the ids of the vocabulary", where=where)


def _check_lengths(data: Mapping[str, Any], where: str) -> None:
    """Refuse padding and truncation to lengths that no text has."""
    padding, truncation = data.get("padding"), data.get("truncation")
    given: list[Any] = []
    if isinstance(padding, Mapping):
        strategy = padding.get("strategy")
        given += [strategy.get("Fixed") if isinstance(strategy, Mapping) else None, padding.get("pad_to_multiple_of")]
    if isinstance(truncation, Mapping):
        given += [truncation.get("stride")]
    for one in given:
        if one is not None and (type(one) is not int or not 0 <= one <= MAX_PADDING):
            raise SettingError(f"padding or truncation to {one!r} tokens", f"at most {MAX_PADDING:,}", where=where)


def expect_valid(path: Path, error: type[RegardError]) -> None:
    """Refuse a tokenizer.json that another library is going to load, by the same checks."""
    try:
        _read_checked(path)
    except OSError as problem:
        raise error(f"Could not read {path}: {problem.strerror}") from problem
    except SettingError as found:
        raise error(found.problem, found.expected, where=found.where, advice=found.advice) from found.__cause__
