"""Several ranks do what one does: the same loss, the same weights, and checkpoints that fit any number of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import SettingError, TrainingError
from regard.training.distributed import World, init_distributed
from training.together import Job, alone, by_two, close, run, weights

WAYS = ["ddp", "fsdp"]


def sections(shard: str = "ddp", **more: Any) -> dict[str, Any]:
    return {**more, "train": {"shard": shard, "seed": 5, **more.get("train", {})}}


@pytest.mark.parametrize("shard", WAYS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"train": {"accumulate": 3}},
        {"weight_average": {"kind": "ema"}},
        {"weight_average": {"kind": "last", "count": 2}},
    ],
    ids=["plain", "accumulated", "moving average", "mean of the last"],
)
def test_two_ranks_train_as_one(shard: str, more: dict[str, Any], tmp_path: Path) -> None:
    one = alone(Job(tmp_path / "one", sections(**more)))
    two = by_two(Job(tmp_path / "two", sections(shard, **more)))
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert two[name] == pytest.approx(value, rel=2e-4), name
    close(weights(tmp_path / "one"), weights(tmp_path / "two"))


@pytest.mark.parametrize(("make", "shard"), [("little", "ddp"), ("little", "fsdp"), ("reading", "ddp")])
def test_a_checkpoint_of_two_ranks_resumes_on_one_and_back(make: str, shard: str, tmp_path: Path) -> None:
    alone(Job(tmp_path / "one", sections(), make))
    folder = tmp_path / "changing"
    by_two(Job(folder, sections(shard), make, steps=4))
    alone(Job(folder, sections(), make, steps=8, resume=True))
    by_two(Job(folder, sections(shard), make, steps=12, resume=True))
    close(weights(tmp_path / "one"), weights(folder))


@pytest.mark.parametrize("shard", WAYS)
def test_two_ranks_resume_bit_for_bit(shard: str, tmp_path: Path) -> None:
    by_two(Job(tmp_path / "whole", sections(shard)))
    by_two(Job(tmp_path / "cut", sections(shard), steps=6))
    by_two(Job(tmp_path / "cut", sections(shard), resume=True))
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def _talk() -> list[Any]:
    with init_distributed("cpu") as world:
        heard = world.gather({"rank": world.rank, "text": "é" * (3 * world.rank)})
        return [heard, world.broadcast(world.rank + 7), world.any(world.rank == 1), float(world.sum(torch.ones(())))]


def test_ranks_hear_each_other() -> None:
    said = [{"rank": 0, "text": ""}, {"rank": 1, "text": "ééé"}]
    assert run(_talk, 2) == [[said, 7, True, 2.0]] * 2
    assert World().gather("me") == ["me"]
    assert World().broadcast("me") == "me"


def _first_fails(folder: Path) -> None:
    with init_distributed("cpu") as world, world.main_first():
        if world.is_main:
            raise SettingError("a mistake", "none", where="rank 0")
        (folder / "second").touch()


def test_nobody_waits_for_a_first_rank_that_failed(tmp_path: Path) -> None:
    with pytest.raises((SettingError, TrainingError), match=r"a mistake|Rank 0 failed"):
        run(partial(_first_fails, tmp_path), 2)
    assert not (tmp_path / "second").exists()


def test_cuda_asked_for_and_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match="has no CUDA device"), init_distributed("cuda"):
        pass
    with init_distributed("auto") as world:
        assert world.device.type == "cpu"
