"""`regard.look(model, "text")`: a view of attention that displays itself in notebooks and saves itself to files.

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
    all_head_statistics,
    collect,
    expect_measures,
    find_head_labels,
    measure,
    pool_map_to_words,
    with_head_labels,
)
from regard.inspection.atlas import Atlas
from regard.page.payload import pack_payload
from regard.page.render import bundle_modules, read_static, render_record, save_page

SUFFIXES = (".html", ".svg", ".png", ".json", ".npz", ".regard")


@dataclass(frozen=True, eq=False)
class View:
    """A record of attention to display, save or measure; `rerun` runs its model again, for measures that need it."""

    record: Record
    rerun: Rerun | None = None

    def measure(self, name: str, *, words: bool = False) -> list[MeasureMap]:
        """Attribution maps by name: rollout, flow, norms, gradients, integrated-gradients, value-zeroing.

        Each has numpy `values` (R, C) and `axes`, the tokens along both sides; with `words`, pooled from pieces to
        words. Rollout and flow are taken through all layers, the others at each place.

        >>> view.measure("rollout")[0].values         # doctest: +SKIP
        """
        found = [one for one in self.record.measures if one.name == name] or measure(name, self.record, self.rerun)
        return [pool_map_to_words(one, self.record.axes) for one in found] if words else found

    def statistics(self, place: str) -> list[HeadStatistics]:
        """Every head of a place in a few numbers: entropy, mean distance, shares on the first token and neighbours."""
        return all_head_statistics(self.record.place(place))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        place: str | None = None,
        head: int | None = None,
        query: int | str | None = None,
        key: int | str | None = None,
        measure: str = "weights",
    ) -> Path:
        """Write a file: .html, .svg, .png, .json, .npz or .regard.

        `place` and `head`: the map that an .svg or .png shows; by default thumbnails of all heads, or with
        cross-attention the last such place, the mean of its heads. A record of pictures shows them with attention laid
        over them: where the `query` looks, or who looks at the `key`, tokens by number or text; by default the class
        token or the first word. `measure`: weights, norms, gradient, or a stored map.

        >>> view.save("cross.png", query="cross", head=3)         # doctest: +SKIP
        """
        from regard.page import export
        from regard.page.picture_figure import Look

        path = expect_suffix(Path(path))
        look = Look(place, head, query, key, measure)
        writers: dict[str, Callable[[Path], object]] = {
            ".html": lambda path: save_page(self.record, path),
            ".svg": lambda path: export.save_figure(self.record, path, look),
            ".png": lambda path: export.save_figure(self.record, path, look),
            ".json": lambda path: export.save_json(self.record, path),
            ".npz": lambda path: export.save_arrays(self.record, path),
            ".regard": self.record.save,
        }
        writers[path.suffix](path)
        return path

    def widget(self) -> Any:
        """A live notebook widget (needs anywidget)."""
        return AttentionWidget(self.record)

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        inside = escape(render_record(self.record), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" style="width: 100%; height: 680px; border: 0"'
        return f'<iframe title="attention" {frame} srcdoc="{inside}"></iframe>'

    def __repr__(self) -> str:
        text = " ".join(self.record.title.split())
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        heads = sum(place.heads for place in self.record.places)
        about = f"{len(self.record.axes[0])} tokens, {len(self.record.places)} places, {heads} heads"
        return "; ".join([f"View({shown!r}, {about}", *self.record.notes]) + ")"


def expect_suffix(path: Path) -> Path:
    """The same path, if a view can be saved there: a known suffix, an existing folder."""
    if path.suffix not in SUFFIXES:
        raise unknown(path.suffix or path.name, SUFFIXES, kind="file suffix", where="save")
    if not path.parent.is_dir():
        raise SettingError(f"Cannot write {path}: there is no folder {path.parent}", where="save")
    return path


def look(
    model: nn.Module | str | os.PathLike[str],
    text: Any,
    text2: str | None = None,
    *,
    tokenizer: Any = None,
    places: str | Sequence[str] = "*",
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    max_new_tokens: int = 0,
    gradient: bool = False,
    atlas: Atlas | str | os.PathLike[str] | None = None,
    measures: Sequence[str] = (),
    row: int = 0,
) -> View:
    """The attention to a text or to images, of a model of this library, of transformers, or any that calls torch's
    attention.

    model            a model, or the folder of a run or checkpoint
    text             a text; an image (path, uint8 array, PIL image), a list of images, in which a list is a video; or
                     the tensors of a model, by name
    text2            a second text, or a translation, instead of the one that the model generates; a caption, a phrase,
                     or the text to images
    tokenizer        instead of that of the folder; for images also a processor of transformers
    places, heads    whose maps to store, for long texts and large models; heads=() stores statistics only
    max_new_tokens   tokens that a language model generates
    gradient         also store the gradient of the output with respect to each attention weight
    atlas            labels of the heads: an Atlas or its file; by default atlas.json in the folder of the model
    measures         attribution maps to store, by name, as `View.measure` gives them
    row              of a batch of tensors, counted from 0
    """
    found = adapter(model, tokenizer, max_new_tokens)
    expect_measures(measures)
    notes = find_head_labels(found, atlas)
    spec = RecordSpec(places, heads, gradient)
    record = with_head_labels(collect(found, text, text2, spec=spec, row=row), notes)
    view = View(record, None if max_new_tokens else _make_rerun(found, text, text2, record, row))
    if not measures:
        return view
    return replace(view, record=replace(record, measures=tuple(one for name in measures for one in view.measure(name))))


def _make_rerun(found: ModelAdapter, text: Any, text2: str | None, record: Record, row: int) -> Rerun:
    """Runs the model again on a text, and on the translation that it generated."""
    generated = [step.token for step in record.steps] if found.kind == "translates" else None

    def target() -> Tensor | None:
        targets: list[Tensor | None] = []
        spec = RecordSpec(heads=(), on_target=targets.append)
        collect(found, text, text2, prefix=generated, spec=spec, row=row)
        return targets[0]

    return Rerun(found.model, target)


class AttentionWidget:
    """AttentionWidget(record) returns an anywidget.AnyWidget with two traits: `payload`, what the page reads, and
    `hash`, its state (the URL fragment of the offline page), which can be read and set from Python."""

    def __new__(cls, record: Record) -> Any:
        return _widget_class()(payload=pack_payload(record))


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise RegardError(
            "The package anywidget is not installed", where="AttentionWidget", advice="pip install 'regard[notebook]'"
        ) from None

    class Widget(anywidget.AnyWidget):
        _esm = bundle_modules("widget.js")
        _css = read_static("page.css")
        payload = traitlets.Bytes().tag(sync=True)
        hash = traitlets.Unicode("").tag(sync=True)

    return Widget
