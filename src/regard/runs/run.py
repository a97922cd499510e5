"""A run: the folder of a trained model, opened once and passed along.

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

from regard.bounded_files import read_bytes
from regard.errors import CheckpointError, RunError, RunWarning, SettingError
from regard.runs import toml
from regard.runs.build import Settings, Where, build_model, expect_weights_fit, load_tokenizers, section
from regard.runs.checkpoint_reader import AVERAGE, WEIGHTS, Checkpoint, newest_intact, steps_in
from regard.runs.renamed_settings import RENAMED
from regard.runs.toml import NONE, Keys
from regard.runs.weights import FILE as WEIGHT_FILE, copy_weights, load_weights, read_shapes
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.decoding import Captioner, Translator
    from regard.text import Labels, Scale

VERSION = 1
RECIPE, STATE = "recipe.toml", "state"


@dataclass(frozen=True)
class Provenance:
    """Which weights the model of a run has.

    kind    "final": those at the end of training; "averaged": a weight average; "checkpoint": of a checkpoint, since
            training has not finished
    path    the file, or the folder of the checkpoint
    step    of the checkpoint
    note    for the user, where training has not finished
    """

    kind: Literal["final", "averaged", "checkpoint"]
    path: Path
    step: int | None = None
    note: str = ""


class Run(os.PathLike[str]):
    """A run folder. Its recipe is parsed when it is opened; tokenizers and weights are loaded on first use.

    Functions that take the folder of a run also take an open Run, and then do not read it again.

    >>> run = Run.open("runs/translator")                # doctest: +SKIP
    >>> run.task, run.model(), run.tokenizer             # doctest: +SKIP
    """

    def __init__(self, path: Path, text: str, settings: Settings) -> None:
        """`text` and `settings`: recipe.toml as text, and as plain data."""
        self.path, self.text, self.settings = path, text, settings
        self._model: ReferenceType[nn.Module] | None = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """The run in a folder; an open Run is returned unchanged."""
        if isinstance(folder, Run):
            return folder
        path = Path(folder)
        if not is_run(path):
            raise RunError(f"{path} is not a run", advice="A run is a folder that `regard train` writes.")
        try:
            content = read_bytes(path / RECIPE, RunError, toml.MAX_SIZE)
        except OSError as error:
            raise RunError(f"Could not read {path / RECIPE}: {error.strerror}") from error
        run = cls(path, *parse_settings(content, str(path / RECIPE)))
        expect_version(run.settings.get("version"), run.where)
        for name in RENAMED.keys() & run.settings.keys():
            raise SettingError(f"Section [{name}] was renamed to [{RENAMED[name][0]}]", where=run.where((name,)))
        return run

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.task!r})"

    @property
    def task(self) -> str:
        return str(self.settings.get("task"))

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return str(self.settings.get("name", ""))

    @property
    def description(self) -> str:
        return str(self.settings.get("description", ""))

    def section(self, name: str) -> Settings:
        """The settings of a section of recipe.toml; empty where it is missing."""
        return section(self.settings, name, self.where)

    def where(self, keys: Keys) -> str:
        """The file and line of a setting, or of the innermost of its sections that exists."""
        known = next(
            (keys[:count] for count in range(len(keys), 0, -1) if toml.has_key(self.settings, keys[:count])), ()
        )
        file = str(self.path / RECIPE)
        return f"{file}:{toml.find_line(self.text, known)}" if known else file

    def expect_task(self, *tasks: str) -> None:
        """Refuse a run of another task."""
        if self.task not in tasks:
            expected = f"a run of task {' or '.join(map(repr, tasks))}"
            raise RunError(f"{self.path}, a run of task {self.task!r}", expected)

    def expect_unpruned(self, where: str) -> None:
        """Refuse a run with pruned heads, for formats that need the full number of heads."""
        if self.section("pruned"):
            advice = "Export the run that it was pruned from; --to onnx takes any number of heads."
            raise RunError(f"Heads of {self.path} were pruned", where=where, advice=advice)

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The tokenizer of the run, or those of source and target."""
        return load_tokenizers(self.settings, self.path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the inputs; a run whose model reads no text is refused."""
        if not self.tokenizers:
            raise RunError(f"{self.path}, a run of task {self.task!r}, has no tokenizer: its model reads no text")
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of a translator's targets, which may be that of its sources."""
        return self.tokenizers[-1]

    @cached_property
    def labels(self) -> Labels | Scale | None:
        """The labels of a classifier, or the scale of a regression model; None for other tasks."""
        if self.task not in ("classification", "image-classification"):
            return None
        from regard.text import Labels, Scale

        known = self.section("data").get("labels", NONE)
        if isinstance(known, Mapping):
            return Scale(known["mean"], known["std"])
        return Labels(() if known == NONE else tuple(known))

    def model(self) -> nn.Module:
        """The trained model, in eval mode; the same object as long as it is referenced."""
        made = None if self._model is None else self._model()
        if made is None:
            expect_weights_fit(self.settings, self.tokenizers, *self._shapes(), self.where)
            with torch.random.fork_rng(devices=[]):  # random weights are drawn, and then replaced
                made = build_model(self.settings, self.tokenizers, self.where)
            self._load(made)
            self._model = ref(made.eval())
        return made

    def translator(self) -> Translator:
        """The translator of a translation run: the model with its tokenizers."""
        from regard.decoding import Translator

        self.expect_task("translation")
        return Translator(self.model(), self.tokenizer, self.target_tokenizer)

    def captioner(self) -> Captioner:
        """The captioner of a captioning run: the model with its tokenizer."""
        from regard.decoding import Captioner

        self.expect_task("captioning")
        return Captioner(self.model(), self.tokenizer, self.section("data").get("fit", "crop"))

    @cached_property
    def provenance(self) -> Provenance:
        """Which weights `model()` loads: the final ones, or else those of the newest undamaged checkpoint."""
        if (self.path / WEIGHT_FILE).exists():
            return Provenance("averaged" if self._average != NONE else "final", self.path / WEIGHT_FILE)
        state = self.path / STATE
        found = newest_intact(state)
        if found is None:
            advice = "Training has not written a checkpoint yet; `regard train --resume` continues it."
            raise CheckpointError(
                f"The run has neither {WEIGHT_FILE} nor an undamaged checkpoint",
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
        return str(self.section("weight_average").get("kind", NONE))

    def _shapes(self) -> tuple[dict[str, tuple[int, ...]], str]:
        """The shapes of the weights that `model()` loads, and the file."""
        provenance = self.provenance
        if provenance.step is None:
            return read_shapes(provenance.path), f"{provenance.path}"
        checkpoint = Checkpoint(provenance.path, provenance.step)
        return checkpoint.shapes(AVERAGE if self._average == "ema" else WEIGHTS), f"{provenance.path}"

    def _load(self, model: nn.Module) -> None:
        """Fill a model with the weights of the run."""
        provenance = self.provenance
        if provenance.step is None:
            load_weights(model, provenance.path)
            return
        prefix = AVERAGE if self._average == "ema" else WEIGHTS
        copy_weights(model, Checkpoint(provenance.path, provenance.step).tensors(prefix), f"{provenance.path}")
        warnings.warn(f"{self.path}: {provenance.note}", RunWarning, stacklevel=3)


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run; other folders may be Hugging Face checkpoints."""
    return isinstance(folder, Run) or (Path(folder) / RECIPE).exists()


def open_run(folder: str | os.PathLike[str]) -> Run | None:
    """The run in a folder; None if it is not a run."""
    return Run.open(folder) if is_run(folder) else None


def parse_settings(content: bytes, name: str) -> tuple[str, dict[str, Any]]:
    """The text and the plain data of a recipe file; errors are reported as `name`:line."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"The file is not UTF-8: byte 0x{content[error.start]:02x} ({error.reason})"
        raise SettingError(problem, where=f"{name}:{line}") from error
    return text, toml.parse(text, name)


def expect_version(version: object, where: Where) -> None:
    """Refuse a recipe of another version of the format; `where`: the file and line of a setting."""
    if version is None or (type(version) is int and version == VERSION):
        return
    newer = isinstance(version, int) and version > VERSION
    raise SettingError(
        f"version {version!r}",
        f"version {VERSION}",
        where=where(("version",)),
        advice="A newer version of regard wrote it: upgrade regard." if newer else "",
    )
