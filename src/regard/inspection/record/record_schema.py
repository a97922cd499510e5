"""The schema of a record's metadata: names, types, ranges and lengths of what stands in the JSON of a file.

Everything is checked before anything is built of it, because a record may come from a stranger: a damaged one is
refused in a sentence that names the field. `tensor_checks` then holds the tensors against this metadata.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints, ValidationError

from regard.errors import RecordError
from regard.pictures import Picture

MAX_NAME = 4096  # characters of a name
MAX_TEXT = 2**27  # characters of a text
MAX_TOKENS = 2**24  # of an axis
MAX_PLACES, MAX_HEADS, MAX_AXES = 2**14, 2**14, 2**15
MAX_DEPTH = 32  # of nested facts
MAX_PICTURES, MAX_GRIDS, MAX_PATCHES = 2**10, 2**12, 2**12  # patches of a side
MAX_PICTURE = 2**23  # characters of a picture's content
LARGEST = 2**31 - 1
MAX_LOG_PROB = 1.0  # ln p, with room for rounding


def _real(value: Any) -> Any:
    """A number that is no truth value, as JSON has it; integers beyond the range of floats are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("should be a number")
    if math.isnan(value) if isinstance(value, float) else abs(value) > LARGEST:
        raise ValueError("should be a number in the range of float32")
    return float(value)


Name = Annotated[str, StringConstraints(strict=True, max_length=MAX_NAME)]
Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT)]
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
Size = Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)]
Number = Annotated[int, Field(strict=True, ge=-1, le=LARGEST)]  # -1: none
Real = Annotated[float, BeforeValidator(_real)]
Share = Annotated[Real, Field(ge=0, le=1)]
Finite = Annotated[Real, Field(allow_inf_nan=False)]
LogProb = Annotated[Real, Field(le=MAX_LOG_PROB)]
Numbers = Annotated[list[Count], Field(max_length=MAX_HEADS)]


class Metadata(BaseModel):
    """A part of the metadata; a field that is not known may change the meaning of the others, so it is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)


class GridMetadata(Metadata):
    """The patches of a picture: the first token of a raster, or the token of every patch."""

    picture: Count
    rows: Annotated[int, Field(strict=True, ge=1, le=MAX_PATCHES)]
    cols: Annotated[int, Field(strict=True, ge=1, le=MAX_PATCHES)]
    box: tuple[Share, Share, Share, Share]
    first: Count | None = None
    tokens: Annotated[list[Number], Field(max_length=MAX_TOKENS)] | None = None


class PictureMetadata(Metadata):
    title: Name
    width: Annotated[int, Field(strict=True, ge=1, le=Picture.MAX_SIDE)]
    height: Annotated[int, Field(strict=True, ge=1, le=Picture.MAX_SIDE)]
    type: Literal["image/png", "image/jpeg"]
    content: Annotated[str, StringConstraints(strict=True, max_length=MAX_PICTURE)]


class AxisMetadata(Metadata):
    name: Name
    text: Text
    tokens: Annotated[list[Text], Field(max_length=MAX_TOKENS)]
    spans: list[tuple[Number, Number]]
    words: list[Number]
    segments: list[Count] | None = None
    numbered: StrictBool = False
    grids: Annotated[list[GridMetadata], Field(max_length=MAX_GRIDS)] = []


class StoredMetadata(Metadata):
    """How scores are recomputed from stored queries and keys."""

    heads: Annotated[Numbers, Field(min_length=1)]
    key_heads: Numbers
    score: Literal["dot", "additive"]
    bias: Literal["distance", "key", "pair", "block"] | None
    half_width: Annotated[int, Field(strict=True, ge=1, le=LARGEST)] | None
    cap: Annotated[Finite, Field(gt=0)] | None = None
    alpha: Annotated[Finite, Field(gt=1)] | None = None


class PlaceMetadata(Metadata):
    name: Name
    layer: Number
    kind: Literal["self", "cross"]
    queries: Count
    keys: Count
    heads: Annotated[int, Field(strict=True, ge=1, le=MAX_HEADS)]
    T: Size
    S: Size
    why: Text
    module: Name | None = None
    call: Count | None = None
    joined: Literal["windows", "chunks"] | None = None
    note: Text = ""
    stored: StoredMetadata | None
    value_heads: Numbers | None


class MeasureMetadata(Metadata):
    name: Name
    title: Name
    place: Name | None
    rows: Count
    cols: Count
    shape: tuple[Size, Size]
    values: str


class LookMetadata(Metadata):
    """The request that a server made the record of; interventions repeat it."""

    run: Name
    text: Text
    other: Text | None
    prefix: Annotated[list[Count], Field(max_length=MAX_TOKENS)] | None


class FactsMetadata(BaseModel):
    """What a reader uses of the facts; there may be others."""

    model_config = ConfigDict(extra="allow")

    model: Name = ""
    kind: Name = ""
    inputs: Text = ""
    rows: Annotated[int, Field(strict=True, ge=1, le=LARGEST)] = 1
    row: Count | None = None
    classes: list[tuple[Text, Real]] = []
    next: list[tuple[Text, Real]] = []
    estimate: Real | None = None
    look: LookMetadata | None = None
    patterns: dict[str, dict[str, Any]] = {}
    badges: dict[str, dict[str, Any]] = {}


class RecordMetadata(Metadata):
    version: Count
    facts: FactsMetadata
    axes: Annotated[list[AxisMetadata], Field(min_length=1, max_length=MAX_AXES)]
    places: Annotated[list[PlaceMetadata], Field(max_length=MAX_PLACES)]
    steps: list[tuple[Count, Number, LogProb, list[tuple[Number, Text, LogProb]]]]
    measures: list[MeasureMetadata] = []
    unheard: dict[Name, Name] = {}
    notes: list[Text] = []
    pictures: Annotated[list[PictureMetadata], Field(max_length=MAX_PICTURES)] = []


def damaged(field: str, problem: str, where: str) -> RecordError:
    """The error for a field of a record."""
    return RecordError(f"The record is incomplete or damaged: {field} {problem}", where=where)


def parse_metadata(data: Any, where: str) -> RecordMetadata:
    """The metadata, checked whole; an error names the file and the field."""
    _check_json(data, where)
    try:
        found = RecordMetadata.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part)[:40] for part in first["loc"][:8]) or "the metadata"
        raise damaged(field, _in_words(first), where) from None
    for number, axis in enumerate(found.axes):
        _check_axis(axis, f"axes.{number}", where)
        for at, grid in enumerate(axis.grids):
            _check_grid(grid, len(axis.tokens), len(found.pictures), f"axes.{number}.grids.{at}", where)
    for number, picture in enumerate(found.pictures):
        _decoded(picture.content, f"pictures.{number}.content", where)
    _check_places(found, where)
    for number, one in enumerate(found.measures):
        _check_measure(one, found, f"measures.{number}", where)
    return found


def _in_words(error: Mapping[str, Any]) -> str:
    """An error of pydantic, after the name of its field."""
    plain = {"missing": "is missing", "extra_forbidden": "is no field of this version"}
    plain |= dict.fromkeys(("model_type", "dict_type"), "should be a JSON object")
    problem = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return plain.get(error["type"], f"{problem[:1].lower()}{problem[1:]}")


def _check_json(data: Any, where: str) -> None:
    """Refuse text that is not Unicode, which JSON can escape and no file can hold, and endless nesting."""
    waiting: list[tuple[Any, str, int]] = [(data, "", 0)]
    while waiting:
        value, field, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise damaged(field[:60], f"is nested deeper than {MAX_DEPTH} levels", where)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise damaged(field[:60] or "the metadata", "is not valid Unicode text", where) from None
        elif isinstance(value, Mapping):
            for key, one in value.items():
                waiting.append((key, f"a name in {field or 'the metadata'}", depth))
                waiting.append((one, f"{field}.{key}".strip("."), depth + 1))
        elif isinstance(value, list | tuple):
            waiting += [(one, field, depth + 1) for one in value]


def _check_axis(axis: AxisMetadata, field: str, where: str) -> None:
    count = len(axis.tokens)
    parts: dict[str, Sequence[Any] | None] = {"spans": axis.spans, "words": axis.words, "segments": axis.segments}
    for name, part in parts.items():
        if part is not None and len(part) != count:
            raise damaged(f"{field}.{name}", f"has {len(part)} entries for {count} tokens", where)
    for number, (start, stop) in enumerate(axis.spans):
        if (start, stop) != (-1, -1) and not 0 <= start <= stop <= len(axis.text):
            problem = f"({start} to {stop}) is not within its text of {len(axis.text)} characters"
            raise damaged(f"{field}.spans.{number}", problem, where)


def _check_grid(grid: GridMetadata, tokens: int, pictures: int, field: str, where: str) -> None:
    if grid.picture >= pictures:
        raise damaged(f"{field}.picture", f"is number {grid.picture}, of {pictures} pictures", where)
    if (grid.first is None) == (grid.tokens is None):
        raise damaged(field, "needs either its first token or all of them", where)
    size = grid.rows * grid.cols
    if grid.tokens is not None and len(grid.tokens) != size:
        raise damaged(f"{field}.tokens", f"has {len(grid.tokens)} entries for {grid.rows} x {grid.cols} patches", where)
    last = max(grid.tokens) if grid.tokens is not None else (grid.first or 0) + size - 1
    if last >= tokens:
        raise damaged(field, f"has token {last}, of {tokens} tokens", where)
    left, top, right, bottom = grid.box
    if not (left < right and top < bottom):
        raise damaged(f"{field}.box", "is empty", where)


def _decoded(content: str, field: str, where: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise damaged(field, "is not base64", where) from None


def _check_places(data: RecordMetadata, where: str) -> None:
    seen: set[str] = set()
    for number, place in enumerate(data.places):
        field = f"places.{number}"
        if place.name in seen:
            raise damaged(f"{field}.name", f"({place.name[:60]!r}) is the name of two places", where)
        seen.add(place.name)
        for side, size in (("queries", place.T), ("keys", place.S)):
            at = getattr(place, side)
            if at >= len(data.axes):
                raise damaged(f"{field}.{side}", f"is axis {at}, of {len(data.axes)} axes", where)
            if len(data.axes[at].tokens) != size:
                problem = f"are {size}, and their axis has {len(data.axes[at].tokens)} tokens"
                raise damaged(f"{field}.{side}", problem, where)
        how = place.stored
        if how is None:
            if place.value_heads is not None:
                raise damaged(f"{field}.value_heads", "has gradients of maps that are not stored", where)
            continue
        if len(set(how.heads)) < len(how.heads) or max(how.heads) >= place.heads:
            raise damaged(f"{field}.stored.heads", f"are not different numbers below {place.heads}", where)
        for name, numbers in (("stored.key_heads", how.key_heads), ("value_heads", place.value_heads)):
            if numbers is not None and len(numbers) != len(how.heads):
                problem = f"has {len(numbers)} entries for {len(how.heads)} stored heads"
                raise damaged(f"{field}.{name}", problem, where)


def _check_measure(one: MeasureMetadata, data: RecordMetadata, field: str, where: str) -> None:
    if one.place is not None and one.place not in {place.name for place in data.places}:
        raise damaged(f"{field}.place", "is not a place of the record", where)
    for side, size in (("rows", one.shape[0]), ("cols", one.shape[1])):
        at = getattr(one, side)
        tokens = len(data.axes[at].tokens) if at < len(data.axes) else None
        if tokens != size:
            problem = f"is axis {at}, which does not exist" if tokens is None else f"has {tokens} tokens for {size}"
            raise damaged(f"{field}.{side}", problem, where)
    content = _decoded(one.values, f"{field}.values", where)
    if len(content) != 4 * one.shape[0] * one.shape[1]:
        raise damaged(f"{field}.values", f"has {len(content)} bytes for {one.shape[0]} x {one.shape[1]} numbers", where)
