"""TensorBoard log of a training: loss, learning rate and metrics as scalars, samples as text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import SettingError
from regard.training.events.event import Ended, Evaluated, Event, Resumed, Trained
from regard.training.objectives.base import ExampleOutput

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TRAINED = ("loss", "learning_rate", "gradient_norm", "epoch", "tokens", "tokens_per_second", "memory")


class TensorBoardLog:
    """A listener that writes for `tensorboard --logdir FOLDER`; needs the package tensorboard.

    When training resumes at step N, TensorBoard hides what was written for later steps.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SettingError(
                f"log.tensorboard = true needs the package tensorboard: {error}",
                where="log.tensorboard",
                advice="Install it with `pip install 'regard[tensorboard]'`, or leave the setting out.",
            ) from error
        self._writer = partial(SummaryWriter, str(folder))
        self._open: SummaryWriter | None = None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Resumed):
            self.close()
            self._open = self._writer(purge_step=event.step + 1)
        writer = self._open = self._open or self._writer()
        match event:
            case Trained():
                for name in TRAINED:
                    writer.add_scalar(f"train/{name}", getattr(event, name), event.step)
            case Evaluated():
                for name, value in event.metrics.items():
                    writer.add_scalar(f"valid/{name}", value, event.step)
                if event.samples:
                    writer.add_text("samples", "\n\n".join(map(_sample_as_markdown, event.samples)), event.step)
                writer.flush()
            case Ended():
                writer.flush()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


def _sample_as_markdown(output: ExampleOutput) -> str:
    """A sample as Markdown: indented, so that nothing in it is taken for markup."""
    fields = {"given": output.given, "got": output.got, "expected": output.expected}
    lines = (f"    {name:<8} {' '.join(text.splitlines())}" for name, text in fields.items() if text is not None)
    return "\n".join(lines)
