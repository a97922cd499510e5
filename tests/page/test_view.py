"""A view is saved in the format of the file suffix."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import parse

import numpy as np
import pytest
import torch

from page import sample
from regard import attend, masks
from regard.errors import RecordError, RegardError, SettingError
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.record import Record
from regard.inspection.record.token_axis import TokenAxis
from regard.page import view
from regard.page.payload import pack_payload
from regard.page.render import bundle_modules, page_title
from regard.page.view import View


def record(words: int = 6, kind: str = "self", stored: bool = True) -> Record:
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, words, 4), torch.randn(1, 2, words, 4)
    got = attend(q, k, mask=masks.Causal(), observe=record_observe(words))
    what = store_qk([got], None) if stored else None
    seen = merge_statistics([got], what)
    place = PlaceRecord("layers.0.self", 0, kind, 0, 0, 2, seen, what, "" if stored else "Only statistics.")
    return Record(
        (TokenAxis.from_tokens("text", ["$a", "<b>", "c\x00", *["w"] * (words - 3)]),), (place,), {"model": "m"}
    )


def test_json_and_npz_hold_the_weights(tmp_path: Path) -> None:
    seen = record()
    told = json.loads(View(seen).save(tmp_path / "a.json").read_text())
    np.testing.assert_allclose(told["places"][0]["weights"]["1"], seen.places[0].tile(1).numpy(), atol=1e-4)
    assert told["axes"][0]["tokens"][1] == "<b>" and told["weights_included"]
    arrays = np.load(View(seen).save(tmp_path / "a.npz"))
    np.testing.assert_array_equal(arrays["0.weights"][1], seen.places[0].tile(1).numpy())
    assert json.loads(arrays["record"].tobytes())["version"] == 2


def test_long_texts_are_saved_without_their_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.page.export.MAX_WEIGHTS", 10)
    told = json.loads(View(record()).save(tmp_path / "a.json").read_text())
    assert not told["weights_included"] and "weights" not in told["places"][0] and told["places"][0]["entropy"]
    assert "0.weights" not in np.load(View(record()).save(tmp_path / "a.npz"))


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("words", [6, 90, 700])
@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_pictures_of_every_size_are_drawn(tmp_path: Path, kind: str, words: int, ending: str) -> None:
    view = View(record(words, kind))
    path = view.save(tmp_path / f"a{ending}")
    assert path.stat().st_size > 1000
    assert view.save(tmp_path / f"b{ending}").read_bytes() == path.read_bytes()
    view.save(tmp_path / f"c{ending}", place="layers.0.self", head=1)
    if ending == ".svg" and words == 6 and kind == "cross":
        text = path.read_text()
        assert "&lt;b&gt;" in text and "<b>" not in text


def test_statistics_alone_are_drawn_too(tmp_path: Path) -> None:
    assert View(record(stored=False)).save(tmp_path / "a.png", head=0).exists()


def test_a_record_and_its_page_are_saved(tmp_path: Path) -> None:
    view = View(record())
    assert Record.load(view.save(tmp_path / "a.regard")).axes == view.record.axes
    assert "</html>" in view.save(tmp_path / "a.html").read_text()
    framed = view._repr_html_()
    assert framed.startswith("<iframe") and "<script" not in framed and "sandbox" in framed


def test_unknown_suffixes_places_and_heads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"Unknown file suffix '.gif'.*Known: .html"):
        View(record()).save(tmp_path / "a.gif")
    with pytest.raises(RecordError, match="place 'x'"):
        View(record()).save(tmp_path / "a.png", place="x")
    with pytest.raises(RecordError, match="head 7"):
        View(record()).save(tmp_path / "a.png", head=7)


def test_the_widget_carries_the_record() -> None:
    anywidget = pytest.importorskip("anywidget")
    record = sample.bert()
    found = view.AttentionWidget(record)
    assert isinstance(found, anywidget.AnyWidget)
    assert found.payload == pack_payload(record) and found.hash == ""
    assert found._esm == bundle_modules("widget.js") and ".regard" in found._css


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    view._widget_class.cache_clear()
    with pytest.raises(RegardError, match=r"pip install 'regard\[notebook\]'"):
        view.AttentionWidget(sample.bert())


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_long_and_odd_names_are_shortened_in_pictures(tmp_path: Path, kind: str, ending: str) -> None:
    """A million characters, which matplotlib would lay out for hours; and its mathematics, not even well-formed."""
    seen = record(6, kind)
    name = "$\\frac{\x00" + "n" * 1_000_000 + ".end"
    axis = replace(seen.axes[0], name="a" * 1_000_000, tokens=("$^", "x" * 1_000_000, *seen.axes[0].tokens[2:]))
    place = replace(seen.places[0], name=name, note="$_" + "y" * 100_000)
    odd = replace(seen, axes=(axis,), places=(place,), unheard={"z" * 100_000: "Odd$"})
    content = View(odd).save(tmp_path / f"a{ending}").read_bytes()
    if ending == ".svg":
        assert "…" in content.decode() and ".end" in content.decode() and "n" * 100 not in content.decode()
        parse(tmp_path / "a.svg")
    assert json.loads(View(odd).save(tmp_path / "a.json").read_text())["places"][0]["name"] == name


def test_a_picture_of_too_many_heads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.page.export.MAX_PANELS", 1)
    with pytest.raises(RecordError, match=r"at most 1 heads in one picture.*Choose a place"):
        View(record(6, "self")).save(tmp_path / "a.svg")


def test_the_title_of_a_page_is_bounded() -> None:
    seen = replace(record(), facts={"model": "m" * 1_000_000})
    assert len(page_title(seen)) < 200
