"""Events of a training (`event`) and their listeners: `log` writes them, `tensorboard` shows them; `curves` and
`plot_curves` make figures of a log.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.training.events.curves import (
        RunCurves as RunCurves,
        curve_values as curve_values,
        panel_names as panel_names,
        read_runs as read_runs,
    )
    from regard.training.events.event import (
        Ended as Ended,
        Evaluated as Evaluated,
        Event as Event,
        EventListener as EventListener,
        Resumed as Resumed,
        Saved as Saved,
        Skipped as Skipped,
        Started as Started,
        Trained as Trained,
    )
    from regard.training.events.log import LogFile as LogFile, plain as plain, read_log as read_log
    from regard.training.events.plot_curves import draw_curves as draw_curves

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "curves": ("RunCurves", "curve_values", "panel_names", "read_runs"),
        "event": ("Ended", "Evaluated", "Event", "EventListener", "Resumed", "Saved", "Skipped", "Started", "Trained"),
        "log": ("LogFile", "plain", "read_log"),
        "plot_curves": ("draw_curves",),
    },
)
