"""The task language with models that read on: every kind trains, lanes go on after a death, names are told apart."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import SettingError, StoreError
from regard.models.attentive_rnn_lm import AttentiveLM
from regard.models.config import config_class
from regard.models.rnn_lm import RecurrentLM
from regard.models.window_lm import WindowLM
from regard.text.tokenizers.oov import oov_id
from regard.training.config.recipes import read_recipe
from regard.training.distributed import World
from regard.training.loop import Loop
from regard.training.objectives.stateful_lm import StatefulLMObjective
from regard.training.optimisers import AdamW
from regard.training.recipe import CheckpointSettings, EvaluateSettings, PreparedTask, TrainSettings
from regard.training.run_writer import RunWriter
from regard.training.tasks import TASKS
from regard.training.tasks.language import (
    AttentiveModel,
    BlockBatches,
    BuiltInText,
    LaneBatches,
    LanguageRecipe,
    RawTextFile,
    RecurrentModel,
    WindowModel,
)
from regard.training.tasks.tokenizers import SizedTokenizer

SMALL = {"width": 8, "hidden": 12}
MODELS = {
    "window": WindowModel(size=3, **SMALL),
    "rnn": RecurrentModel(cell="rnn", **SMALL),
    "gru": RecurrentModel(cell="gru", layers=2, dropout=0.1, **SMALL),
    "lstm": RecurrentModel(tied=False, **SMALL),
    **{
        score: AttentiveModel(score=score, memory=10, **SMALL)
        for score in ("dot", "scaled-dot", "bilinear", "additive", "cosine")
    },
    **{way: AttentiveModel(copying=way, memory=10, **SMALL) for way in ("average", "gate", "sentinel")},
}
STORIES = BuiltInText(view="document", examples=12, valid=3)
RECIPES = ("window-lm", "recurrent-lm", "attentive-lm", "copying-lm")


def recipe(**sections) -> LanguageRecipe:
    usual = {
        "data": STORIES,
        "tokenizer": SizedTokenizer(size=90),
        "model": MODELS["sentinel"],
        "batches": LaneBatches(sequence_length=8, lanes=4),
        "optimiser": AdamW(learning_rate=1e-2),
        "evaluate": EvaluateSettings(every=4, monitor="perplexity"),
        "checkpoint": CheckpointSettings(every=3),
    }
    return LanguageRecipe(name="test", **{**usual, **sections})


def loop_of(prepared: PreparedTask, folder: Path, steps: int) -> Loop:
    return Loop(prepared, steps, World(), RunWriter(folder, World(), prepared.recipe))


@pytest.mark.parametrize(
    "batches",
    [BlockBatches(sequence_length=8, rows=4), LaneBatches(sequence_length=8, lanes=4)],
    ids=["blocks", "lanes"],
)
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_kind_trains_in_blocks_and_in_lanes(kind, batches, tmp_path) -> None:
    made = recipe(model=MODELS[kind], batches=batches).prepare(tmp_path)
    first, second, *_ = made.train
    assert first.inputs.shape == (4, 8) and second.carried == (batches.kind == "lanes")
    loss = made.objective.loss(made.model, first, None)
    after = made.objective.loss(made.model, second, loss.carry)
    (loss.total + after.total).backward()
    assert all(one.grad is not None for one in made.model.parameters())
    assert (loss.carry is None) == (batches.kind == "blocks")
    copies = kind in ("average", "gate", "sentinel")
    assert (
        isinstance(made.objective, StatefulLMObjective)
        and made.objective.open_vocabulary == made.model.copies == copies
    )


def made(name: str, **more: object) -> torch.nn.Module:
    """The model of a section, as a run builds it."""
    section = MODELS[name].model_dump()
    return config_class("language", section.pop("kind"))(vocabulary=20, **section, **more).build()


def test_settings_reach_the_model() -> None:
    window = made("window", unknown=1)
    assert isinstance(window, WindowLM) and window.size == 3 and window.words.unknown == 1
    gru = made("gru")
    assert isinstance(gru, RecurrentLM) and gru.rnn.layers.num_layers == 2 and gru.dropout.p == 0.1
    looking = made("sentinel")
    assert isinstance(looking, AttentiveLM) and looking.memory == 10 and type(looking.copy).__name__ == "Sentinel"
    assert made("lstm").softmax.weight is not gru.words.embedding.weight


def test_a_gpt_in_lanes_is_refused_in_words(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('task = "language"\nname = "mine"\n[batches]\nkind = "lanes"\n')
    with pytest.raises(SettingError, match=r"A gpt carries no state.*batches.kind = blocks"):
        read_recipe(str(path), tasks=TASKS)


def test_models_that_copy_are_given_names_apart(tmp_path) -> None:
    for model, kinds in ((MODELS["lstm"], 0), (MODELS["gate"], 5)):
        made = recipe(model=model).prepare(tmp_path / model.kind)
        tokenizer, stream = made.objective.tokenizer, made.train.plan.stream
        ids = stream.read(np.arange(len(stream))[None])[0]
        outside = set(ids[ids >= len(tokenizer)].tolist())
        assert len(outside) >= kinds and bool(outside) == bool(kinds)
        assert (ids == tokenizer.special.unknown).any() != bool(kinds)
    lines = [line for story in STORIES._stories("train", 12) for line in story.sentences]
    rare = {word for line in lines for word in line.split() if f"▁{word}" not in _vocabulary(tokenizer)}
    assert outside == {oov_id(word, len(tokenizer)) for word in rare}


def _vocabulary(tokenizer) -> set[str]:
    return {tokenizer.token(number) for number in range(len(tokenizer))}


def test_a_store_of_closed_text_is_not_taken_for_an_open_one(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the cat saw Valdon .\nValdon saw the cat .\n" * 20)
    data = RawTextFile(train=path)
    sized = SizedTokenizer(size=9)
    made = recipe(data=data, tokenizer=sized, model=MODELS["gru"]).prepare(tmp_path / "run")
    assert made.train.plan.stream.ids.dtype == np.uint8
    with pytest.raises(StoreError, match="unknown words"):
        recipe(data=data, tokenizer=sized).prepare(tmp_path / "run")
    opened = recipe(data=data, tokenizer=sized).prepare(tmp_path / "open")
    assert opened.train.plan.stream.ids.max() >= 9


def test_a_short_text_has_fewer_lanes_and_every_token_once(tmp_path) -> None:
    made = recipe(batches=LaneBatches(sequence_length=16, lanes=500)).prepare(tmp_path)
    for batches in (made.train, made.valid(0, 1)):
        stream = batches.plan.stream
        assert batches.plan.lanes == (len(stream) - 1) // 16
        assert sum(batch.tokens for batch in batches) == len(stream) - 1
    parts = [made.valid(rank, 3) for rank in range(3)]
    assert sum(batch.tokens for part in parts for batch in part) == len(made.valid(0, 1).plan.stream) - 1


@pytest.mark.parametrize("kind", ["window", "gru", "sentinel"])
def test_lanes_go_on_after_a_death_as_if_nothing_had_been(kind, tmp_path) -> None:
    """What is carried is kept in a checkpoint: a training that stopped in the middle of an epoch ends the same."""
    plan = recipe(model=MODELS[kind], train=TrainSettings(steps=10))
    whole = loop_of(plan.prepare(tmp_path / "whole"), tmp_path / "whole", 10)
    whole.start()
    whole.run()
    first = loop_of(plan.prepare(tmp_path / "died"), tmp_path / "died", 5)
    first.start()
    first.run()
    assert first.state.carried is not None
    again = loop_of(plan.prepare(tmp_path / "died"), tmp_path / "died", 10)
    again.resume()
    again.run()
    ours, theirs = (loop.state.model.state_dict() for loop in (again, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_recipes_differ_in_their_model_alone() -> None:
    plans = [read_recipe(name, tasks=TASKS).model_dump(exclude={"name", "description", "model"}) for name in RECIPES]
    assert all(plan == plans[0] for plan in plans)
    kinds = [read_recipe(name, tasks=TASKS).model.kind for name in RECIPES]
    assert kinds == ["window", "recurrent", "attentive", "attentive"]


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipes_learn(name, tmp_path) -> None:
    """A few steps on few stories bring it well below what the frequencies of words alone would give."""
    sets = ["data.examples=300", "data.valid=20", "train.steps=60", "batches.lanes=16", "model.width=48"]
    sets += [
        "model.hidden=48",
        "evaluate.every=60",
        "evaluate.samples=1",
        "tokenizer.size=600",
        "optimiser.learning_rate=2e-2",
    ]
    made = read_recipe(name, sets, tasks=TASKS).prepare(tmp_path)
    stream = made.valid(0, 1).plan.stream
    ids = stream.read(np.arange(len(stream))[None])[0]
    known = np.where(ids < len(made.objective.tokenizer), ids, made.objective.tokenizer.special.unknown)
    shares = np.bincount(known) / len(known)
    by_frequency = np.exp(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    loop = loop_of(made, tmp_path, 60)
    loop.start()
    assert loop.run().metrics["perplexity"] < 0.5 * by_frequency
