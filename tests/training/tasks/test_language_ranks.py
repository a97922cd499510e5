"""Lanes dealt out to two ranks: what they carry, copy and share is what one rank alone would have had."""

from functools import partial
from pathlib import Path

import pytest
import torch

from regard.training.distributed import World, init_distributed
from regard.training.loop import Loop
from regard.training.optimisers import AdamW
from regard.training.recipe import CheckpointSettings, EvaluateSettings, TrainSettings
from regard.training.run_writer import RunWriter
from regard.training.tasks.language import AttentiveModel, BuiltInText, LaneBatches, LanguageRecipe
from regard.training.tasks.tokenizers import SizedTokenizer
from training.together import Diary, close, run, weights

STEPS = 5


def train(folder: Path, shard: str, lanes: int, world: World) -> dict[str, float]:
    torch.set_num_threads(1)
    recipe = LanguageRecipe(
        name="test",
        data=BuiltInText(view="document", examples=12, valid=3),
        tokenizer=SizedTokenizer(size=90),
        model=AttentiveModel(copying="sentinel", memory=10, width=8, hidden=8),
        batches=LaneBatches(sequence_length=8, lanes=lanes),
        train=TrainSettings(shard=shard),
        optimiser=AdamW(learning_rate=1e-2),
        evaluate=EvaluateSettings(every=STEPS, monitor="perplexity"),
        checkpoint=CheckpointSettings(every=100),
    )
    made = recipe.prepare(folder / f"rank {world.rank}", world.rank, world.ranks)
    diary = Diary()
    writer = RunWriter(folder, world, recipe)
    loop = Loop(made, STEPS, world, writer, [diary])
    loop.start()
    loop.run()
    writer.write_weights(writer.gather_weights(loop.state.model))
    return diary.losses


def joined(folder: Path, shard: str, lanes: int) -> dict[str, float]:
    with init_distributed("cpu") as world:
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
