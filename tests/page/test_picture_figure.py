"""Pictures with attention over them are saved as PNG and SVG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import parse

import numpy as np
import pytest
import torch

from browser import picture_records
from page import sample
from regard.errors import RecordError, RegardError, SettingError
from regard.page import picture_figure
from regard.page.picture_figure import Look
from regard.page.view import View


@pytest.mark.parametrize("ending", [".png", ".svg"])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("caption", {"query": "cross", "head": 0}),
        ("caption", {"key": "patch 3,3"}),
        ("vit", {"measure": "gradient", "query": 40}),
        ("mixed", {}),
        ("frames", {"query": "0"}),
        ("measured", {"measure": "gradients", "key": 5}),
        ("detector", {"key": "diamond"}),
    ],
)
def test_every_kind_of_record_is_drawn(tmp_path: Path, name: str, how: dict, ending: str) -> None:
    view = View(picture_records.MAKERS[name]())
    content = view.save(tmp_path / f"a{ending}", **how).read_bytes()
    assert len(content) > 5000 and content == view.save(tmp_path / f"b{ending}", **how).read_bytes()
    if ending == ".svg":
        assert "looks" in content.decode()
        parse(tmp_path / "a.svg")


def drawn_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record, **how: object) -> np.ndarray:
    """The values that a figure draws."""
    seen: list[np.ndarray] = []
    monkeypatch.setattr(picture_figure._Drawing, "save", lambda self, *_: seen.append(self.values))
    View(record).save(tmp_path / "a.png", **how)
    return seen[0]


def test_the_values_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def drawn(**how: object) -> np.ndarray:
        return drawn_values(monkeypatch, tmp_path, record, **how)

    record = picture_records.vit(6, 2, 2)
    place = record.places[1]
    mean = torch.stack([place.tile(0), place.tile(1)]).mean(0)
    np.testing.assert_allclose(drawn(), mean[0], atol=1e-5)
    np.testing.assert_allclose(drawn(query=9, head=1), place.tile(1)[9], atol=1e-5)
    np.testing.assert_allclose(
        drawn(key="[REG 1]", place=record.places[0].name, head=0), record.places[0].tile(0)[:, 2], atol=1e-5
    )
    raw = place.tile(0) * place.value_norms[0]
    norms = raw / raw.sum(-1, keepdim=True)
    np.testing.assert_allclose(drawn(measure="norms", head=0, query=5), norms[5], atol=1e-5)
    np.testing.assert_allclose(drawn(measure="norms", head=0, key=5), norms[:, 5], atol=1e-5)
    record = picture_records.measured()
    np.testing.assert_allclose(drawn(measure="relevance", key=3), record.measures[0].values[:, 3])


def test_what_cannot_be_drawn_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    view = View(picture_records.caption())
    with pytest.raises(RegardError, match=r"Unknown token 'crosss'.*cross"):
        view.save(path, query="crosss")
    with pytest.raises(SettingError, match="0 to 63"):
        view.save(path, key=64)
    with pytest.raises(SettingError, match="one of them"):
        view.save(path, query=0, key=0)
    with pytest.raises(RegardError, match="Unknown measure 'other'"):
        view.save(path, measure="other")
    with pytest.raises(RecordError, match="cannot be computed again"):
        View(picture_records.statistics()).save(path)
    with pytest.raises(SettingError, match="no picture"):
        View(sample.bert()).save(path, query=0)
    assert not path.exists()


def test_places_without_patches_are_drawn_as_maps(tmp_path: Path) -> None:
    record = picture_records.caption()
    assert not picture_figure.shows_patches(record, Look(place="decoder.0.self"))
    text = View(record).save(tmp_path / "a.svg", place="decoder.0.self", head=0).read_text()
    assert "looks" not in text and "striped" in text


def test_names_are_text(tmp_path: Path) -> None:
    record = picture_records.hostile()
    odd = replace(record, axes=(record.axes[0], replace(record.axes[1], tokens=("$^", *record.axes[1].tokens[1:]))))
    View(odd).save(tmp_path / "a.svg", key=9)
    parse(tmp_path / "a.svg")
    assert "<img" not in (tmp_path / "a.svg").read_text()
