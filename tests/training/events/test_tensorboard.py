"""What TensorBoard is told: with a writer that notes it down, and with the package itself where somebody has it."""

import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from regard.errors import SettingError
from regard.training.events.event import Ended, Evaluated, Resumed, Saved, Started, Trained
from regard.training.events.tensorboard import TensorBoardLog
from regard.training.objectives.base import ExampleOutput

MODULE = "torch.utils.tensorboard"


class Notebook:
    """Stands in for SummaryWriter."""

    pages: ClassVar[list[tuple[Any, ...]]]

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.pages.append(("open", folder, purge_step))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.pages.append((name, value, step))

    def add_text(self, name: str, text: str, step: int) -> None:
        self.pages.append((name, text, step))

    def flush(self) -> None: ...

    def close(self) -> None:
        self.pages.append(("close",))


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    stub = ModuleType(MODULE)
    stub.SummaryWriter = Notebook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, stub)
    Notebook.pages = []
    return Notebook.pages


def trained(step: int) -> Trained:
    return Trained(step, 0, 2.5, 1e-3, 0.5, 10 * step, 100.0, 1.0, 7)


def test_scalars_and_samples(tmp_path: Path, pages: list[tuple[Any, ...]]) -> None:
    sample = ExampleOutput(0, "the *cat*", "le\nchat", "le chat")
    with closing(TensorBoardLog(tmp_path)) as log:
        log.on_event(Started(0, 10))
        log.on_event(trained(1))
        log.on_event(Evaluated(1, {"loss": 2.0, "bleu": 30.0}, True, (sample,)))
        log.on_event(Ended(1, "finished", 1.0))
    assert pages[0] == ("open", str(tmp_path), None)
    assert ("train/loss", 2.5, 1) in pages
    assert ("train/learning_rate", 1e-3, 1) in pages
    assert [page for page in pages if page[0].startswith("valid/")] == [("valid/loss", 2.0, 1), ("valid/bleu", 30.0, 1)]
    assert ("samples", "    given    the *cat*\n    got      le chat\n    expected le chat", 1) in pages
    assert pages[-1] == ("close",)


def test_steps_done_again_are_hidden(tmp_path: Path, pages: list[tuple[Any, ...]]) -> None:
    with closing(TensorBoardLog(tmp_path)) as log:
        log.on_event(Resumed(40, 100))
        log.on_event(Saved(50, "x", 0.1))
    assert pages == [("open", str(tmp_path), 41), ("close",)]


def test_a_missing_package_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith(MODULE)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SettingError, match=r"pip install 'regard\[tensorboard\]'"):
        TensorBoardLog(tmp_path)


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="the package tensorboard is not installed")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(TensorBoardLog(tmp_path)) as log:
        for event in (Started(0, 10), trained(1), trained(2), Evaluated(2, {"loss": 2.0}, True), trained(3)):
            log.on_event(event)
        log.on_event(Resumed(2, 10))
        log.on_event(trained(3))
    heard = EventAccumulator(str(tmp_path)).Reload()
    assert [(one.step, one.value) for one in heard.Scalars("train/loss")] == [(1, 2.5), (2, 2.5), (3, 2.5)]
    assert [(one.step, one.value) for one in heard.Scalars("valid/loss")] == [(2, 2.0)]
