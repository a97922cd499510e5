"""Lanes dealt out to two ranks: what they carry, copy and share is what one rank alone would have had."""

from functools import partial
from pathlib import Path

import pytest
import torch

from regard.training.distributed import World, join
from regard.training.loop import Loop
from regard.training.recipe import AdamW, Evaluate, Keep, Train
from regard.training.run_writer import Keeping
from regard.training.tasks.language import Attentive, BuiltInText, InLanes, Language
from regard.training.tasks.tokenizers import Sized
from training.together import Diary, close, run, weights

STEPS = 5


def train(folder: Path, shard: str, lanes: int, world: World) -> dict[str, float]:
    torch.set_num_threads(1)
    recipe = Language(
        name="test",
        data=BuiltInText(view="document", examples=12, valid=3),
        tokenizer=Sized(size=90),
        model=Attentive(copying="sentinel", memory=10, width=8, hidden=8),
        batches=InLanes(size=8, lanes=lanes),
        train=Train(shard=shard),
        optimiser=AdamW(rate=1e-2),
        evaluate=Evaluate(every=STEPS, watch="perplexity"),
        keep=Keep(every=100),
    )
    made = recipe.prepare(folder / f"rank {world.rank}", world.rank, world.ranks)
    diary = Diary()
    keeping = Keeping(folder, world, recipe)
    loop = Loop(made, STEPS, world, keeping, [diary])
    loop.start()
    loop.run()
    keeping.write_weights(keeping.weights(loop.state.model))
    return diary.losses


def joined(folder: Path, shard: str, lanes: int) -> dict[str, float]:
    with join("cpu") as world:
        return train(folder, shard, lanes, world)


@pytest.mark.parametrize(
    ("shard", "lanes"),
    [
        pytest.param("ddp", 3, id="ddp"),
        pytest.param("fsdp", 3, id="fsdp", marks=pytest.mark.long),
        pytest.param("ddp", 1, id="idle rank", marks=pytest.mark.long),
    ],
)
def test_two_ranks_train_as_one(shard, lanes, tmp_path) -> None:
    alone = train(tmp_path / "alone", shard, lanes, World())
    both, _ = run(partial(joined, tmp_path / "both", shard, lanes), 2)
    assert alone == pytest.approx(both, rel=1e-4) and f"perplexity {STEPS}" in alone
    close(weights(tmp_path / "alone"), weights(tmp_path / "both"))
