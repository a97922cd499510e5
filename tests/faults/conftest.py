"""The runs that several files take copies of: one that was never interrupted, and one that died."""

from pathlib import Path

import pytest

from faults.cut import NAME, cut, finish


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(folder, NAME, resume=False)
    return folder


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died at step 8 with two checkpoints: take a copy."""
    return cut(tmp_path_factory.mktemp("dead") / "run", NAME, 8)
