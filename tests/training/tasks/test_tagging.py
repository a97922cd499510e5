"""The task tagging and its objective: losses by hand, tags filled in, an ELMo taken along, and no need of it later."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from regard.errors import CorpusError, SettingError
from regard.runs.weights import save_weights, weights_of
from regard.text.examples import IGNORED
from regard.training.config.recipes import read_recipe, write_recipe
from regard.training.recipe import PreparedTask, TrainSettings
from regard.training.tasks import contextual
from regard.training.tasks.contextual import ContextualRecipe
from regard.training.tasks.tagging import (
    PRETRAINED,
    BuiltInTagged,
    ConllFile,
    ElmoTaggerModel,
    TaggingRecipe,
    WordTaggerModel,
)
from regard.training.tasks.tokenizers import SizedTokenizer

SMALL = BuiltInTagged(examples=30, valid=10)
CONLL = "the DET\ncat NOUN\nsees VERB\nMöbius PROPN\n\na DET\ndog NOUN\n\nthe DET\ndog NOUN\n\n"


def recipe(**sections) -> TaggingRecipe:
    model = ElmoTaggerModel(width=8, input="characters", dropout=0.0)
    return TaggingRecipe(
        name="test", **{"data": SMALL, "tokenizer": SizedTokenizer(size=60), "model": model, **sections}
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> PreparedTask:
    made = recipe(train=TrainSettings(prefetch=0)).prepare(tmp_path_factory.mktemp("run"))
    made.model.eval()
    return made


@pytest.fixture(scope="module")
def elmo_run(tmp_path_factory) -> Path:
    """A run as training leaves it, of an ELMo that has learned nothing yet."""
    folder = tmp_path_factory.mktemp("elmo")
    section = contextual.ElmoModel(input="characters", width=6, layers=1)
    theirs = ContextualRecipe(
        name="elmo", data=contextual.BuiltInSentences(examples=20), tokenizer=SizedTokenizer(size=50), model=section
    )
    made = theirs.prepare(folder)
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.mul_(1.5)  # not what chance gives
    write_recipe(made.recipe, folder / "recipe.toml")
    save_weights(weights_of(made.model), folder / "model.safetensors")
    return folder


def test_the_loss_is_the_sum_of_surprises(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    batch = max(prepared.train, key=len)
    logs = model(batch.inputs, batch.lengths, batch.spellings).detach().double().log_softmax(-1)
    places = (batch.tags != IGNORED).nonzero().tolist()
    expected = -sum(float(logs[row, at, batch.tags[row, at]]) for row, at in places)
    right = sum(int(logs[row, at].argmax() == batch.tags[row, at]) for row, at in places)
    assert objective.loss(model, batch, None).total.item() == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        found = objective.summary(objective.measure(model, batch, None).sums)
    assert found["loss"] == pytest.approx(expected / batch.tokens, rel=1e-5)
    assert found["accuracy"] == right / len(places) and batch.tokens == len(places)
    assert set(found) == set(objective.metrics)
    smooth = replace(objective, label_smoothing=0.2)
    spread = -sum(float(logs[row, at].mean()) for row, at in places)
    got = smooth.loss(model, batch, None).total.item()
    assert got == pytest.approx(0.8 * expected + 0.2 * spread, rel=1e-5)
    assert torch.equal(*(one.measure(model, batch, None).sums["nll"] for one in (smooth, objective)))


def test_no_rows_give_zero_everywhere(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    empty = prepared.train.collate(np.array([], dtype=np.int64), None)
    model.zero_grad()
    total = objective.loss(model, empty, None).total
    total.backward()
    assert total.item() == 0
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())
    with torch.no_grad():
        sums = objective.measure(model, empty, None).sums
    assert not any(value.any() for value in sums.values())
    assert list(objective.outputs(model, empty)) == [] and objective.text_metrics([]) == {}
    assert np.isnan(objective.summary(sums)["loss"])


def test_what_a_tagger_says(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    batch = next(iter(prepared.train))
    said = model(batch.inputs, batch.lengths, batch.spellings).argmax(-1)
    sentences = list(SMALL.training())
    for row, one in enumerate(objective.outputs(model, batch)):
        assert one.index == batch.indices[row] and one.expected == " ".join(sentences[one.index].tags)
        assert one.got.split() == [objective.tags.names[tag] for tag in said[row][batch.tags[row] != IGNORED].tolist()]
        assert len(one.given.split()) == len(sentences[one.index].words)


@pytest.mark.parametrize(
    "model",
    [
        ElmoTaggerModel(width=8),
        ElmoTaggerModel(width=8, finetune=False),
        WordTaggerModel(width=8),
        WordTaggerModel(input="characters"),
    ],
)
def test_it_can_be_trained_and_assembled_again(model, tmp_path) -> None:
    made = recipe(model=model).prepare(tmp_path)
    made.objective.loss(made.model, next(iter(made.train)), None).total.backward()
    assert all((one.grad is not None) == one.requires_grad for one in made.model.parameters())
    assert made.recipe.data.tags is not None and "NOUN" in made.recipe.data.tags
    assert made.notes[0].startswith("30 training texts, 10 for validation; ADJ, ")
    assembled = made.recipe.assemble(tmp_path)
    for name, weight in made.model.state_dict().items():
        assert torch.equal(weight, assembled.state_dict()[name]), name
    assert made.recipe.prepare(tmp_path).recipe == made.recipe
    with pytest.raises(SettingError, match="recipe does not list its tags"):
        recipe(model=model).assemble(tmp_path)


@pytest.mark.parametrize("tuned", [True, False])
def test_an_elmo_is_taken_along_and_may_be_gone(tuned, elmo_run, tmp_path) -> None:
    run, folder = tmp_path / "elmo", tmp_path / "run"
    shutil.copytree(elmo_run, run)
    asked = recipe(model=ElmoTaggerModel(pretrained=run, finetune=tuned))
    made = asked.prepare(folder)
    section = made.recipe.model
    assert (section.input, section.width, section.layers) == ("characters", 6, 1)
    theirs = ContextualRecipe.assemble(read_recipe(run / "recipe.toml", tasks={"contextual": ContextualRecipe}), run)
    kept = made.model.encoder.state_dict()
    assert kept.keys() == theirs.encoder.state_dict().keys()
    assert not torch.equal(
        kept["forward_rnn.0.weight_ih_l0"], theirs.encoder.forward_rnn[0].weight_ih_l0
    )  # what was learned
    torch.testing.assert_close(
        kept["forward_rnn.0.weight_ih_l0"], 1.5 * theirs.encoder.forward_rnn[0].weight_ih_l0.detach()
    )
    assert len(made.objective.tokenizer) == 50  # theirs, not the one of the recipe
    assert {one.requires_grad for one in made.model.encoder.parameters()} == {tuned}
    shutil.rmtree(run)
    for again in (made.recipe, asked):  # as it is resumed, and as it is where the first try was killed
        resumed = again.prepare(folder)
        assert resumed.recipe == made.recipe
        assert all(map(torch.equal, resumed.model.state_dict().values(), made.model.state_dict().values()))
    assert made.recipe.assemble(folder).encoder.width == 6


def test_what_does_not_fit_is_refused_in_words(elmo_run, tmp_path) -> None:
    with pytest.raises(SettingError, match=r"model\.width: width = 8 does not fit the ELMo of .*, which has width = 6"):
        recipe(model=ElmoTaggerModel(pretrained=elmo_run, width=8)).prepare(tmp_path / "a")
    with pytest.raises(SettingError, match=r"is not a run folder\. Name the folder of a run of the recipe elmo"):
        recipe(model=ElmoTaggerModel(pretrained=tmp_path / "nowhere")).prepare(tmp_path / "b")
    with pytest.raises(ValidationError):
        WordTaggerModel(pretrained=elmo_run)
    write_recipe(recipe(), tmp_path / "recipe.toml")
    with pytest.raises(SettingError, match="task 'tagging'"):
        recipe(model=ElmoTaggerModel(pretrained=tmp_path)).prepare(tmp_path / "c")
    assert not (tmp_path / "b" / PRETRAINED).exists()


def test_a_conll_file(tmp_path) -> None:
    path = tmp_path / "train.conll"
    path.write_text(CONLL, encoding="utf-8")
    made = recipe(data=ConllFile(train=path, valid=0.3)).prepare(tmp_path / "run")
    assert made.recipe.data.tags == ["DET", "NOUN", "PROPN", "VERB"]
    assert made.notes[0].startswith("2 training texts, 1 for validation")
    outputs = [one for batch in made.valid(0, 1) for one in made.objective.outputs(made.model, batch)]
    assert [(one.given, one.expected) for one in outputs] == [("the dog", "DET NOUN")]
    with pytest.raises(CorpusError, match="label 'VERB'"):
        recipe(data=ConllFile(train=path, tags=["DET", "NOUN", "PROPN"])).prepare(tmp_path / "few")
    with pytest.raises(SettingError, match="The tags are DET, DET"):
        recipe(data=ConllFile(train=path, tags=["DET", "DET"])).prepare(tmp_path / "twice")


def test_context_learns_what_words_cannot(tmp_path) -> None:
    """One word, two tags by the word before it: a static vector is right half of the time, ELMo always."""
    path = tmp_path / "train.conll"
    pairs = [("a DET", "train NOUN"), ("to PART", "train VERB")]
    path.write_text("".join(f"{one}\n{two}\n\n" for one, two in pairs * 4), encoding="utf-8")
    data, found = ConllFile(train=path, valid=path), {}
    for model in (ElmoTaggerModel(width=8, dropout=0.0), WordTaggerModel(width=8, dropout=0.0)):
        made = recipe(data=data, model=model).prepare(tmp_path / model.kind)
        batch = next(iter(made.train))
        optimiser = torch.optim.AdamW(made.model.parameters(), 0.05)
        for _ in range(40):
            optimiser.zero_grad()
            made.objective.loss(made.model, batch, None).total.backward()
            optimiser.step()
        with torch.no_grad():
            found[model.kind] = made.objective.summary(made.objective.measure(made.model, batch, None).sums)["accuracy"]
    assert found == {"elmo": 1.0, "words": 0.75}
