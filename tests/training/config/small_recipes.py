"""Two tasks that do nothing, for tests of how recipes are read: sections of every shape that a task may have."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.errors import SettingError
from regard.training.recipe import Recipe
from regard.training.section import Count, Fraction, InputPath, RecipeSection

MINIMAL = 'task = "count"\nname = "tiny"\n'


class Drawn(RecipeSection):
    kind: Literal["drawn"] = "drawn"
    examples: Count = 10


class Files(RecipeSection):
    kind: Literal["files"] = "files"
    train: InputPath
    valid: InputPath | Fraction = 0.1
    more: tuple[InputPath, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()


class Inner(RecipeSection):
    note: str | None = "here"
    flags: dict[str, float] = Field(default_factory=dict)


class Model(RecipeSection):
    layers: Count = 2
    heads: Count = 4
    width: Count = 8
    pair: tuple[int, float] = (1, 1.0)
    sizes: tuple[int | None, ...] = ()
    inner: Inner = Inner()
    spare: Inner | None = None

    @model_validator(mode="after")
    def check(self) -> "Model":
        if self.width % self.heads:
            raise SettingError(f"heads = {self.heads}", f"a divisor of {self.width}", advice="Try 4.")
        return self


class Counting(Recipe):
    task: Literal["count"] = "count"
    data: Annotated[Drawn | Files, Field(discriminator="kind")] = Drawn()
    model: Model = Model()


class Sorting(Recipe):
    """`data` has no default, so its kind must be said."""

    task: Literal["sort"]
    data: Annotated[Drawn | Files, Field(discriminator="kind")]


TASKS: dict[str, type[Recipe]] = {"count": Counting, "sort": Sorting}


def put(folder: Path, text: str, name: str = "recipe.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path
