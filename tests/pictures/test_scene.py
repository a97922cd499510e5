"""Scenes: regions are exactly the pixels of their objects, and the drawing is what the description says."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from regard.errors import CorpusError, SettingError
from regard.pictures import (
    COLOURS,
    SHAPES,
    SIZES,
    TEXTURES,
    Background,
    Scene,
    SceneCorpus,
    SceneObject,
    SceneSettings,
    Stroke,
    bounding_box,
    captioned,
    decode_runs,
    encode_runs,
)
from regard.pictures.scene_objects import radii
from regard.pictures.shapes import INSIDE, shape_mask

FAR = {"red": "cyan", "orange": "blue", "yellow": "blue", "green": "pink"} | {"cyan": "red", "blue": "yellow"}
FAR |= {"purple": "yellow", "pink": "green"}  # colours of which every channel, or the one that tells, is far


def recoloured(scene: Scene, number: int) -> Scene:
    one = scene.objects[number]
    changed = replace(one, colour=FAR[one.colour])
    return replace(scene, objects=(*scene.objects[:number], changed, *scene.objects[number + 1 :]))


@pytest.mark.parametrize("size", [64, 97, 128])
def test_a_region_is_what_changes_with_the_object(size: int) -> None:
    for example in SceneCorpus(captioned, 25, seed=size, settings=SceneSettings(size=size)):
        before = example.scene.draw()
        assert before.shape == (size, size, 3) and before.dtype == np.uint8
        for number in range(len(example.scene.objects)):
            changed = (recoloured(example.scene, number).draw() != before).any(2)
            assert (changed == example.scene.region([number])).all()


def test_regions_of_several_are_their_union_and_none_overlap() -> None:
    for example in SceneCorpus(captioned, 40):
        scene = example.scene
        regions = [scene.region([number]) for number in range(len(scene.objects))]
        assert (sum(region.astype(int) for region in regions) <= 1).all()
        assert (scene.region(range(len(regions))) == np.logical_or.reduce(regions)).all()
        assert not scene.region([]).any()
        for one, region in zip(scene.objects, regions, strict=True):
            rows, columns = np.nonzero(region)
            assert (np.hypot(columns + 0.5 - one.x, rows + 0.5 - one.y) <= one.radius + 0.75).all()
            assert region.sum() > 0.15 * np.pi * one.radius**2


def test_what_lies_in_front_hides_what_lies_behind() -> None:
    behind = SceneObject("square", "red", "large", "plain", 30, 30, 12)
    front = SceneObject("circle", "yellow", "medium", "plain", 36, 30, 8)
    scene = Scene(64, Background(), (behind, front))
    before = scene.draw()
    for number in (0, 1):
        assert ((recoloured(scene, number).draw() != before).any(2) == scene.region([number])).all()
    assert scene.region([0]).sum() < Scene(64, Background(), (behind,)).region([0]).sum()


def test_objects_beyond_the_edge_are_cut_off() -> None:
    for x, y in ((0, 0), (64, 20.25), (-30, 10), (70, 70)):
        one = SceneObject("star", "green", "medium", "striped", x, y, 9, marked=True)
        scene = Scene(64, Background(clutter=(Stroke(x, y, 8, 3, "red"),)), (one,))
        assert scene.draw().shape == (64, 64, 3)
        assert scene.region([0]).sum() <= shape_mask("star", 9, x % 1, y % 1, "plain", 1.0).touched.sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_lie_within_their_radius_and_differ(shape: str) -> None:
    places = np.linspace(-1.3, 1.3, 521)
    u, v = np.meshgrid(places, places)
    inside = INSIDE[shape](u, v)
    assert np.hypot(u, v)[inside].max() <= 1.02
    for other in SHAPES:
        if other != shape:
            unlike = inside ^ INSIDE[other](u, v)
            assert unlike.sum() > 0.2 * max(inside.sum(), INSIDE[other](u, v).sum()), other


def test_coverage_is_the_area() -> None:
    covered = float(shape_mask("circle", 10.0, 0.25, 0.5, "plain", 1.0).alpha.sum())
    assert covered == pytest.approx(np.pi * 9.7**2, rel=0.01)


def test_the_outline_of_a_marked_object_is_white_with_a_gap() -> None:
    for shape in SHAPES:
        one = SceneObject(shape, "blue", "medium", "plain", 32, 32, 9, marked=True)
        scene = Scene(64, Background(), (one,))
        plain = replace(scene, objects=(replace(one, marked=False),))
        outline = (scene.draw() != plain.draw()).any(2)
        assert outline.sum() > 30 and not (outline & scene.region([0])).any()
        assert (scene.draw()[outline] > 200).all(1).any()


def test_size_words_have_disjoint_radii() -> None:
    for size in (64, 80, 101, 128):
        spans = [radii(word, size) for word in SIZES]
        assert all(spans) and all(low[-1] < high[0] for low, high in pairwise(spans))


def test_every_word_is_drawn_differently() -> None:
    drawn = {
        Scene(64, Background(), (SceneObject(shape, colour, "large", texture, 32, 32, 12),)).draw().tobytes()
        for shape in SHAPES
        for colour in COLOURS
        for texture in TEXTURES
    }
    assert len(drawn) == len(SHAPES) * len(COLOURS) * len(TEXTURES)


def test_a_scene_survives_json() -> None:
    for example in SceneCorpus(captioned, 20):
        assert Scene.from_dict(example.scene.to_dict()) == example.scene


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("objects", 0, "shape"), "sqare", "Unknown shape 'sqare'. Did you mean 'square'"),
        (("objects", 0, "x"), float("nan"), "finite numbers"),
        (("objects", 0, "radius"), 1e9, "a radius of 1 to 64"),
        (("background", "colour"), "beige", "Unknown background 'beige'"),
        (("background", "fog"), 1, "does not describe a scene"),
        (("objects",), 3, "does not describe a scene"),
    ],
)
def test_wrong_descriptions_are_refused(path: tuple, value: object, said: str) -> None:  # type: ignore[type-arg]
    fields = place = SceneCorpus(captioned, 1)[0].scene.to_dict()
    fields["objects"] = list(fields["objects"])
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(CorpusError, match=said):
        Scene.from_dict(fields)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="64 to 128 pixels"):
        Scene(32, Background(), ())
    with pytest.raises(SettingError, match="numbers below 0"):
        Scene(64, Background(), ()).region([0])


def test_runs_tell_a_region_whole() -> None:
    rng = np.random.default_rng(0)
    for share in (0, 0.1, 0.5, 1):
        region = rng.random((7, 9)) < share
        assert (decode_runs(encode_runs(region), 7, 9) == region).all()
    assert encode_runs(np.array([[False, True], [True, False]])) == [1, 2]
    assert bounding_box(np.zeros((3, 3), bool)) is None
    assert bounding_box(np.eye(4, 5, 1, bool)) == (1, 0, 5, 4)
    with pytest.raises(SettingError, match="pixels below 4"):
        decode_runs([2, 3], 2, 2)
