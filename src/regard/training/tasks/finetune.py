"""A BERT that a task goes on with: one that has read, taken along from its run, or one that begins with this task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field
from safetensors.torch import load_file

from regard.errors import SettingError
from regard.models import Bert, MaskedLM
from regard.models.config import SpanPredictorConfig
from regard.runs import TOKENIZER, fill, load_weights, save_weights, weights_of
from regard.training.config.recipes import read_recipe, write_recipe
from regard.training.recipe import InputPath
from regard.training.tasks.bert_size import Sizes
from regard.training.tasks.masked import Masked
from regard.training.tasks.tokenizers import kept_tokenizer

READER, READER_RECIPE = (
    Path("data", "reader.safetensors"),
    Path("data", "reader.toml"),
)  # so that a run can be resumed alone
TAKEN = ("size", "layers", "width", "heads", "positions", "hidden", "activation", "segments", "eps")


class Started(Sizes):
    """The states of a BERT, as a task takes them.

    `start`: the run that taught it, whose tokenizer comes along in the place of [tokenizer], as does its size; the run
    may be gone afterwards. `tune`: whether it goes on learning; where not, its states are features. `layer`: which
    states, the last ones by default; 0 are words by themselves, "mix" is an average that is learned.
    """

    start: InputPath | None = None
    tune: bool = SpanPredictorConfig.tune
    layer: Annotated[int, Field(ge=0)] | Literal["mix"] | None = SpanPredictorConfig.layer


S = TypeVar("S", bound=Started)


def of_its_size(section: S, folder: Path) -> S:
    """The section with the size of the BERT that is taken along into this folder; another size is refused."""
    if section.start is None:
        return section
    if not (folder / READER).exists():
        _take_along(section.start, folder)
    theirs = read_recipe(folder / READER_RECIPE, tasks={"masked": Masked})
    assert isinstance(theirs, Masked)
    sizes = {name: getattr(theirs.model, name) for name in TAKEN}
    for name, value in sizes.items():
        asked = getattr(section, name)
        if name in section.model_fields_set and asked not in (None, value):
            came = f"{name} = {asked!r} for the BERT of {section.start}"
            raise SettingError(came, f"{value!r}, as it has, or nothing", where=f"model.{name}")
    return section.model_copy(update=sizes)


def begin(bert: Bert, folder: Path) -> None:
    """Fill a BERT with what was taken along, if anything was."""
    if (folder / READER).exists():
        fill(bert, load_file(folder / READER), f"{folder / READER}")


def _take_along(run: Path, folder: Path) -> None:
    """Copy what a task needs of a BERT's run into its own: the tokenizer, the size and the weights."""
    if not (run / "recipe.toml").exists():
        raise SettingError(f"{run}, which is no run", "a folder where BERT was pre-trained", where="model.start")
    theirs = read_recipe(run / "recipe.toml", tasks={"masked": Masked})
    assert isinstance(theirs, Masked)
    if theirs.pruned:
        advice = "Teach it the task first, and prune afterwards."
        raise SettingError(f"{run}, which has lost heads", "a whole BERT", where="model.start", advice=advice)
    model = theirs.assemble(run)
    assert isinstance(model, MaskedLM)
    load_weights(model, run)
    (folder / READER).parent.mkdir(parents=True, exist_ok=True)
    kept_tokenizer(theirs.tokenizer, run).save(folder / TOKENIZER)
    write_recipe(theirs, folder / READER_RECIPE)
    save_weights(weights_of(model.bert), folder / READER)  # last: where it is, the others are
