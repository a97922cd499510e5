"""A run: the folder of a training, read once and passed along.

RUN/recipe.toml  tokenizer.json  model.safetensors  state/  log.jsonl
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import ReferenceType, ref

import torch
from torch import nn

from regard.errors import CheckpointError, RunError, RunWarning, SettingError
from regard.runs import toml
from regard.runs.build import Settings, Where, build_model, load_tokenizers, section
from regard.runs.checkpoint import AVERAGE, WEIGHTS, Checkpoint, newest_whole, steps_in
from regard.runs.toml import NONE, Keys
from regard.runs.weights import FILE as WEIGHT_FILE, fill, load_weights
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.decoding import Translator
    from regard.text import Labels, Scale

VERSION = 1
RECIPE, STATE = "recipe.toml", "state"


@dataclass(frozen=True)
class Provenance:
    """Which weights the model of a run has.

    kind    "final": those that training kept; "averaged": their average; "checkpoint": those of a checkpoint, since
            training had not finished
    path    the file, or the folder of the checkpoint
    step    of the checkpoint
    note    for a person, where the weights are not those that training was to end with
    """

    kind: Literal["final", "averaged", "checkpoint"]
    path: Path
    step: int | None = None
    note: str = ""


class Run(os.PathLike[str]):
    """A run folder. Its recipe is parsed when it is opened; tokenizers and weights are loaded on first use.

    Whatever takes the folder of a run takes an open one as well, and then does not read it again.

    >>> run = Run.open("runs/translator")                # doctest: +SKIP
    >>> run.task, run.model(), run.tokenizer             # doctest: +SKIP
    """

    def __init__(self, path: Path, text: str, settings: Settings) -> None:
        """`text` and `settings`: recipe.toml as it is written, and as plain data."""
        self.path, self.text, self.settings = path, text, settings
        self._model: ReferenceType[nn.Module] | None = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """The run in a folder; a run that is open already is returned as it is."""
        if isinstance(folder, Run):
            return folder
        path = Path(folder)
        if not is_run(path):
            raise RunError(f"{path}, which is no run", "a folder that `regard train` has made")
        try:
            content = (path / RECIPE).read_bytes()
        except OSError as error:
            raise RunError(f"{path / RECIPE} ({error.strerror})", "a recipe that can be read") from error
        run = cls(path, *parse_settings(content, str(path / RECIPE)))
        expect_version(run.settings.get("version"), run.where)
        return run

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def task(self) -> str:
        return str(self.settings.get("task"))

    @property
    def name(self) -> str:
        """As the recipe is called."""
        return str(self.settings.get("name", ""))

    @property
    def description(self) -> str:
        return str(self.settings.get("description", ""))

    def section(self, name: str) -> Settings:
        """The settings of a section of recipe.toml, as they are written there; none where it is left out."""
        return section(self.settings, name, self.where)

    def where(self, keys: Keys) -> str:
        """The file and line of a setting, or of the last of its sections that is there."""
        known = next((keys[:count] for count in range(len(keys), 0, -1) if toml.has(self.settings, keys[:count])), ())
        file = str(self.path / RECIPE)
        return f"{file}:{toml.line_of(self.text, known)}" if known else file

    def expect_task(self, *tasks: str) -> None:
        """Refuse a run that is for none of these tasks."""
        if self.task not in tasks:
            wanted = f"one of task {' or '.join(map(repr, tasks))}"
            raise RunError(f"{self.path}, a run of task {self.task!r}", wanted)

    def expect_whole(self, where: str) -> None:
        """Refuse a run that lacks heads, where layers must have as many as their width has room for."""
        if self.section("pruned"):
            advice = "Export the run that it was pruned from; --to onnx takes any number of heads."
            raise RunError(f"{self.path}, which lacks heads", "a model with all its heads", where=where, advice=advice)

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The one tokenizer of the run, or that of the source and that of the target."""
        return load_tokenizers(self.settings, self.path)

    @property
    def tokenizer(self) -> Tokenizer:
        """What the run reads with."""
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """What a translator writes with, which may be what it reads with."""
        return self.tokenizers[-1]

    @cached_property
    def labels(self) -> Labels | Scale | None:
        """What the outputs of a classifier stand for: classes, or a number on a scale; None for other tasks."""
        if self.task != "classification":
            return None
        from regard.text import Labels, Scale

        known = self.section("data").get("labels", NONE)
        if isinstance(known, Mapping):
            return Scale(known["center"], known["spread"])
        return Labels(() if known == NONE else tuple(known))

    def model(self) -> nn.Module:
        """The trained model, in eval mode; the same one as long as anybody uses it."""
        made = None if self._model is None else self._model()
        if made is None:
            with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
                made = build_model(self.settings, self.tokenizers, self.where)
            self._load(made)
            self._model = ref(made.eval())
        return made

    def translator(self) -> Translator:
        """The model of a translation run with its tokenizers, ready for text."""
        from regard.decoding import Translator

        self.expect_task("translation")
        return Translator(self.model(), self.tokenizer, self.target_tokenizer)

    @cached_property
    def provenance(self) -> Provenance:
        """Which weights `model()` takes: those that training kept, or else those of its newest whole checkpoint."""
        if (self.path / WEIGHT_FILE).exists():
            return Provenance("averaged" if self._average != NONE else "final", self.path / WEIGHT_FILE)
        state = self.path / STATE
        found = newest_whole(state)
        if found is None:
            advice = "Training has not written a checkpoint yet; `regard train --resume` goes on with it."
            raise CheckpointError(
                f"no {WEIGHT_FILE} and no whole checkpoint",
                "a run with weights",
                where=f"{self.path}",
                advice=advice if (self.path / "log.jsonl").exists() else "",
            )
        which = "averaged weights" if self._average == "ema" else "weights"
        note = f"{which} of step {found.step}, from {STATE}/{found.folder.name}: training had not finished"
        if self._average == "last":
            note += ", and the average of its last checkpoints is not made yet"
        if found.step != (newest := max(steps_in(state))):
            note += f"; the checkpoint of step {newest} is damaged"
        return Provenance("checkpoint", found.folder, found.step, note)

    @property
    def _average(self) -> str:
        return str(self.section("average").get("kind", NONE))

    def _load(self, model: nn.Module) -> None:
        """Fill a model with the weights of the run."""
        taken = self.provenance
        if taken.step is None:
            load_weights(model, taken.path)
            return
        prefix = AVERAGE if self._average == "ema" else WEIGHTS
        fill(model, Checkpoint(taken.path, taken.step).tensors(prefix), f"{taken.path}")
        warnings.warn(f"{self.path}: {taken.note}", RunWarning, stacklevel=3)


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run; others may be Hugging Face checkpoints."""
    return isinstance(folder, Run) or (Path(folder) / RECIPE).exists()


def open_run(folder: str | os.PathLike[str]) -> Run | None:
    """The run in a folder; None where the folder is something else."""
    return Run.open(folder) if is_run(folder) else None


def parse_settings(content: bytes, name: str) -> tuple[str, dict[str, Any]]:
    """The bytes of a recipe's file: its text, and its plain data; `name` is what mistakes are told of."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        came = f"byte 0x{content[error.start]:02x} ({error.reason})"
        raise SettingError(came, "UTF-8", where=f"{name}:{line}") from error
    return text, toml.parsed(text, name)


def expect_version(version: object, where: Where) -> None:
    """Refuse a recipe of another version of the format; `where` says where a setting was written."""
    if version is None or (type(version) is int and version == VERSION):
        return
    newer = isinstance(version, int) and version > VERSION
    raise SettingError(
        f"version {version!r}",
        f"version {VERSION}",
        where=where(("version",)),
        advice="A newer regard wrote it: read it with that one." if newer else "",
    )
