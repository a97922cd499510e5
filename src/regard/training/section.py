"""A section of a recipe: the base class of all settings, and the types of their values (counts, fractions, paths)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epochs = Annotated[str, Field(pattern=r"^\d+(\.\d+)? epochs?$", description='text such as "3 epochs"')]


def resolve_path(path: Path, info: ValidationInfo) -> Path:
    """An absolute path: a relative one starts from the folder `info.context`, and stays as it is without one."""
    if info.context is None:
        return path
    try:
        return Path(info.context) / path.expanduser()
    except RuntimeError as error:  # ~name of an unknown user
        raise ValueError("a path whose ~ is the home folder of a known user") from error


InputPath = Annotated[Path, AfterValidator(resolve_path)]
"""A file or folder that a recipe names. A relative one starts from the folder of the recipe's file, in --set from the
working directory."""


class RecipeSection(BaseModel):
    """A section of a recipe: immutable settings, of which misspelt ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class LabelSmoothing(RecipeSection):
    """Label smoothing: the share of each target's probability that is spread evenly over all classes or tokens."""

    label_smoothing: Fraction = 0.0
