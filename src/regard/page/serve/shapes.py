"""What requests to the API hold, and what it answers."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from regard.adapters.base import Kind
from regard.page.serve.outcomes import Wish

LARGEST = 2**31 - 1


def _whole(text: str) -> str:
    """Half of a pair of surrogates, which JSON can spell, is no character, and no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text", "characters of Unicode alone") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]


class Closed(BaseModel):
    """Takes the fields it names and no others, of their own kinds."""

    model_config = ConfigDict(extra="forbid")


class Run(BaseModel):
    """A model that text can be put to."""

    name: str
    kind: Kind
    description: str


class Given(BaseModel):
    """A record that the server was started with."""

    id: str
    text: str = Field(description="How its text begins.")


class Question(Closed):
    """A text, and for which run. `other`: a second text, or a translation; `prefix`: tokens that the writing begins
    with."""

    model_config = ConfigDict(extra="forbid", strict=True)
    run: Text
    text: Text
    other: Text | None = None
    prefix: list[Number] | None = None


class Made(BaseModel):
    """The new record."""

    id: str


class Edit(Closed):
    """The weight that a key is to have."""

    model_config = ConfigDict(extra="forbid", strict=True)
    key: Number
    weight: float = Field(ge=0, le=1, allow_inf_nan=False)


class Wished(Closed):
    """A head other than it is. `head`: null for all; `weights`: none, the same for all keys, or those of some keys of
    one query's row, the others sharing what is left; `query`: null for all."""

    model_config = ConfigDict(extra="forbid", strict=True)
    place: Number
    head: Number | None = None
    weights: Literal["zero", "uniform"] | Annotated[list[Edit], Field(min_length=1)]
    query: Number | None = None

    def wish(self) -> Wish:
        weights = (
            self.weights if isinstance(self.weights, str) else tuple((one.key, one.weight) for one in self.weights)
        )
        return Wish(self.place, self.head, weights, self.query)


class Intervention(Closed):
    """Changes of heads, the first one first."""

    model_config = ConfigDict(extra="forbid", strict=True)
    changes: list[Wished] = Field(min_length=1)


class Word(BaseModel):
    """A word that was written, or put behind a mask: how likely it was and is, null where it is not among the
    likeliest; and what is likeliest now."""

    text: str
    before: float
    after: float | None
    best: str
    share: float


class Share(BaseModel):
    """A class, or a word that could come next: how likely it was and is; null: not among the likeliest."""

    text: str
    before: float | None
    after: float | None


class Outcome(BaseModel):
    """What the changed model makes of the same words, and what it writes by itself, where it writes."""

    words: list[Word]
    classes: list[Share]
    next: list[Share]
    estimate: tuple[float, float] | None
    written: list[str] | None


class AtHead(Closed):
    place: Number = Field(description="Number of the place, as the record lists them.")
    head: Number


class AtTile(AtHead):
    top: Number
    bottom: Number = Field(description="One past the last query.")
    left: Number
    right: Number = Field(description="One past the last key.")
    rows: int = Field(ge=1, le=LARGEST, description="Query i is in row floor((i - top) rows / (bottom - top)).")
    cols: int = Field(ge=1, le=LARGEST)


class AtQuery(AtHead):
    query: Number


class AtPair(AtQuery):
    key: Number


class Pair(BaseModel):
    """How a weight comes about: `terms` sum to `score`; weight = exp(score + added - lse) * gain where the key is
    `seen`, else 0; null is minus infinity."""

    q: list[float]
    k: list[float]
    terms: list[float]
    score: float
    added: float | None
    lse: float | None
    gain: float
    seen: bool
    weight: float
