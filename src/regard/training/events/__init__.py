"""What a training tells, and who listens: `events` happen; `log` keeps them, `tensorboard` shows them, `curves` and
`drawing` make figures of what was kept."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.training.events.curves import Run as Run, numbers as numbers, panels as panels, read_runs as read_runs
    from regard.training.events.event import (
        Ended as Ended,
        Evaluated as Evaluated,
        Event as Event,
        Resumed as Resumed,
        Trained as Trained,
    )
    from regard.training.events.log import plain as plain
    from regard.training.events.plot_curves import draw as draw

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "curves": ("Run", "numbers", "panels", "read_runs"),
        "event": ("Ended", "Evaluated", "Event", "Resumed", "Trained"),
        "log": ("plain",),
        "plot_curves": ("draw",),
    },
)
