"""What happens in a training (`event`), and who listens: `log` keeps it, `tensorboard` shows it, `curves` and
`plot_curves` make figures of what was kept.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.training.events.curves import Run as Run, numbers as numbers, panels as panels, read_runs as read_runs
    from regard.training.events.event import (
        Ended as Ended,
        Evaluated as Evaluated,
        Event as Event,
        Listener as Listener,
        Resumed as Resumed,
        Saved as Saved,
        Skipped as Skipped,
        Started as Started,
        Trained as Trained,
    )
    from regard.training.events.log import LogFile as LogFile, plain as plain, read_log as read_log
    from regard.training.events.plot_curves import draw as draw

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "curves": ("Run", "numbers", "panels", "read_runs"),
        "event": ("Ended", "Evaluated", "Event", "Listener", "Resumed", "Saved", "Skipped", "Started", "Trained"),
        "log": ("LogFile", "plain", "read_log"),
        "plot_curves": ("draw",),
    },
)
