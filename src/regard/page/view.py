"""What one looks at: `regard.look(model, "text")`, which shows itself in a notebook and saves itself as a file.

view = regard.look("runs/bert", "Even though she did not win the award , she was satisfied .")
view.save("page.html")          # or .svg, .png, .json, .npz, and .regard for the record itself
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.adapters import ModelAdapter, adapter
from regard.errors import RegardError, SettingError, unknown
from regard.inspection import (
    HeadStatistics,
    MeasureMap,
    Record,
    RecordSpec,
    Rerun,
    collect,
    every_head,
    expect_measures,
    measure,
    noted,
    notes_of,
    pooled,
)
from regard.inspection.atlas import Atlas
from regard.page.payload import payload
from regard.page.render import bundle, page, save_page, static

ENDINGS = (".html", ".svg", ".png", ".json", ".npz", ".regard")


@dataclass(frozen=True, eq=False)
class View:
    """A record with ways to see it; `rerun`: its model, for the measures that run it again."""

    record: Record
    rerun: Rerun | None = None

    def measure(self, name: str, *, words: bool = False) -> list[MeasureMap]:
        """Attribution maps by name: rollout, flow, norms, gradients, integrated-gradients, value-zeroing.

        Each has numpy `values` (R, C) and `axes`, the tokens along both sides; with `words`, pooled from pieces to
        words. Rollout and flow are taken through all layers, the others at each place.

        >>> view.measure("rollout")[0].values         # doctest: +SKIP
        """
        found = [one for one in self.record.measures if one.name == name] or measure(name, self.record, self.rerun)
        return [pooled(one, self.record.sides) for one in found] if words else found

    def statistics(self, place: str) -> list[HeadStatistics]:
        """Every head of a place in a few numbers: entropy, mean distance, shares on the first token and neighbours."""
        return every_head(self.record.place(place))

    def save(self, path: str | os.PathLike[str], *, place: str | None = None, head: int | None = None) -> Path:
        """Write a file; its ending says what it is.

        `place` and `head`: what a picture shows; by default one map for each head of every place, or for a translation
        the last place that looks across, the mean of its heads.
        """
        from regard.page import export

        path = expect_ending(Path(path))
        writers: dict[str, Callable[[Path], object]] = {
            ".html": lambda path: save_page(self.record, path),
            ".svg": lambda path: export.draw(self.record, path, place, head),
            ".png": lambda path: export.draw(self.record, path, place, head),
            ".json": lambda path: export.save_json(self.record, path),
            ".npz": lambda path: export.save_arrays(self.record, path),
            ".regard": self.record.save,
        }
        writers[path.suffix](path)
        return path

    def widget(self) -> Any:
        """A live view for notebooks, of anywidget."""

        return AttentionWidget(self.record)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which may run its script and nothing else."""
        inside = escape(page(self.record), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" style="width: 100%; height: 680px; border: 0"'
        return f'<iframe title="attention" {frame} srcdoc="{inside}"></iframe>'

    def __repr__(self) -> str:
        text = " ".join(self.record.sides[0].text.split())
        return f"View({text[:60]!r}, {len(self.record.places)} places)"


def expect_ending(path: Path) -> Path:
    """The same path, if its ending is one that a view can be saved with, and its folder is there."""
    if path.suffix not in ENDINGS:
        raise unknown(path.suffix or path.name, ENDINGS, kind="an ending", where="save")
    if not path.parent.is_dir():
        raise SettingError(f"{path}", f"a folder that is there; {path.parent} is not", where="save")
    return path


def look(
    model: nn.Module | str | os.PathLike[str],
    text: str | Mapping[str, Tensor],
    text2: str | None = None,
    *,
    tokenizer: Any = None,
    places: str | Sequence[str] = "*",
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    writes: int = 0,
    gradient: bool = False,
    atlas: Atlas | str | os.PathLike[str] | None = None,
    measures: Sequence[str] = (),
) -> View:
    """What a model attends to in a text: of this library, of transformers, or any that calls torch's attention.

    `model`: itself, or the folder of a run or checkpoint. `text2`: a second text, or the translation to be read instead
    of one that the model writes. `places`, `heads`: what the maps are kept of, for long texts in large models; heads=()
    keeps statistics alone. `writes`: how many tokens a language model adds. `gradient`: keep how each weight matters to
    ln p of what the model says. `atlas`: the names of the heads, an Atlas or a
    file of one; atlas.json and audit.json in the folder of the model are found by themselves.
    `measures`: attribution maps, by name, to be stored and saved with the record, as `View.measure` gives them.
    """
    found = adapter(model, tokenizer, writes)
    expect_measures(measures)
    notes = notes_of(found, atlas)
    spec = RecordSpec(places, heads, gradient)
    record = noted(collect(found, text, text2, spec=spec), notes)
    view = View(record, None if writes else _rerun(found, text, text2, record))
    if not measures:
        return view
    return replace(view, record=replace(record, measures=tuple(one for name in measures for one in view.measure(name))))


def _rerun(found: ModelAdapter, text: Any, text2: str | None, record: Record) -> Rerun:
    """One run of the model over a text, and over what it wrote when it was looked at."""
    written = [step.token for step in record.steps] if found.kind == "translates" else None

    def target() -> Tensor | None:
        said: list[Tensor | None] = []
        collect(found, text, text2, prefix=written, spec=RecordSpec(heads=(), said=said.append))
        return said[0]

    return Rerun(found.model, target)


class AttentionWidget:
    """AttentionWidget(record) makes an anywidget.AnyWidget with two traits: `payload`, what the page reads, and `hash`,
    what it shows (as in the address of the offline page), which can be read and set from Python."""

    def __new__(cls, record: Record) -> Any:
        return _widget_class()(payload=payload(record))


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise RegardError(
            "a notebook without anywidget",
            "the package anywidget",
            where="AttentionWidget",
            advice="pip install 'regard[notebook]'",
        ) from None

    class Widget(anywidget.AnyWidget):
        _esm = bundle("widget.js")
        _css = static("page.css")
        payload = traitlets.Bytes().tag(sync=True)
        hash = traitlets.Unicode("").tag(sync=True)

    return Widget
