"""Augmentation: the same by seed and index, within its bounds, and nothing where nothing is asked for."""

import numpy as np
import pytest

from regard.errors import SettingError
from regard.pictures import Augment, SceneCorpus, captioned, resize_image

PIXELS = SceneCorpus(captioned, 1)[0].scene.draw()
STILL = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0}


def test_the_same_by_seed_and_index() -> None:
    augment = Augment(48, flip=0.5)
    first = [augment(PIXELS, 0, index) for index in range(5)]
    assert all((augment(PIXELS, 0, index) == first[index]).all() for index in range(5))
    assert len({one.tobytes() for one in first}) == 5
    assert (augment(PIXELS, 1, 0) != first[0]).any()
    assert all(one.shape == (48, 48, 3) and one.dtype == np.uint8 for one in first)


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    whole = Augment(64, scale=(1, 1), ratio=(1, 1), **STILL)
    assert (whole(PIXELS, 0, 0) == PIXELS).all()
    small = Augment(32, scale=(1, 1), ratio=(1, 1), **STILL)
    assert (small(PIXELS, 0, 0) == resize_image(PIXELS, 32)).all()


def test_a_flip_is_a_mirror() -> None:
    mirror = Augment(64, scale=(1, 1), ratio=(1, 1), flip=1.0, **STILL)
    assert (mirror(PIXELS, 0, 3) == PIXELS[:, ::-1]).all()
    never = Augment(64, scale=(1, 1), ratio=(1, 1), **STILL)
    assert all((never(PIXELS, 0, index) == PIXELS).all() for index in range(20))


def test_crops_keep_to_their_scale() -> None:
    """On a ramp, the range of values tells the share that was kept."""
    ramp = np.broadcast_to(np.linspace(0, 255, 256).astype(np.uint8)[None, :, None], (256, 256, 3))
    augment = Augment(64, scale=(0.25, 0.5), ratio=(1, 1), **STILL)
    shares = []
    for index in range(50):
        cropped = augment(np.ascontiguousarray(ramp), 0, index).astype(float)
        shares.append((np.ptp(cropped) / 255) ** 2)
    assert min(shares) > 0.22 and max(shares) < 0.52 and max(shares) - min(shares) > 0.1


def test_colours_stay_within_their_bounds() -> None:
    even = np.full((8, 8, 3), 100, np.uint8)
    levels = [int(Augment(8, contrast=0, saturation=0, brightness=0.3)(even, 0, at)[0, 0, 0]) for at in range(60)]
    assert 70 <= min(levels) < 80 and 120 < max(levels) <= 130
    assert (Augment(8, brightness=0, saturation=1.0)(even, 0, 1) == even).all()  # grey has none to change


@pytest.mark.parametrize("shape", [(1, 1), (1, 400), (400, 1), (3, 5)])
def test_odd_images(shape: tuple[int, int]) -> None:
    assert Augment(16)(np.zeros((*shape, 3), np.uint8), 0, 0).shape == (16, 16, 3)


@pytest.mark.parametrize(
    "setting",
    [{"size": 0}, {"scale": (0, 1)}, {"scale": (0.9, 0.2)}, {"ratio": (2, 1)}, {"flip": 2}, {"contrast": -1}],
    ids=str,
)
def test_wrong_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="Augment: got"):
        Augment(**{"size": 8, **setting})  # type: ignore[arg-type]
