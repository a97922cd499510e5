"""A BERT taken along into other tasks: its weights, size and tokenizer; features or tuned; the run may be gone."""

import shutil
from pathlib import Path

import pytest
import torch

from regard.errors import SettingError
from regard.runs.weights import save_weights, weights_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.config.recipes import write_recipe
from regard.training.recipe import TrainSettings
from regard.training.tasks import masked_lm, tagging
from regard.training.tasks.classification import BertClassifierModel, BuiltInLabelled, ClassificationRecipe, LabelTable
from regard.training.tasks.finetune import PRETRAINED
from regard.training.tasks.masked_lm import BuiltInDocuments, MaskedLMRecipe
from regard.training.tasks.tokenizers import SizedTokenizer

SMALL = BuiltInLabelled(examples=30, valid=10)


def recipe(**sections) -> ClassificationRecipe:
    own = BertClassifierModel(layers=2, width=16, heads=2, max_positions=40, dropout=0.0)
    return ClassificationRecipe(
        name="test",
        **{
            "data": SMALL,
            "tokenizer": SizedTokenizer(size=60),
            "model": own,
            "train": TrainSettings(prefetch=0),
            **sections,
        },
    )


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory) -> Path:
    """A run as training leaves it, of a BERT that has learned nothing yet."""
    folder = tmp_path_factory.mktemp("bert")
    section = masked_lm.MaskedLMModel(layers=2, width=8, heads=4, max_positions=50)
    made = MaskedLMRecipe(
        name="bert",
        data=BuiltInDocuments(examples=20, reviews=0.0, valid=0),
        tokenizer=SizedTokenizer(size=80),
        model=section,
    ).prepare(folder)
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.mul_(1.5)  # not what chance gives
    write_recipe(made.recipe, folder / "recipe.toml")
    save_weights(weights_of(made.model), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"finetune": False},
        {"pooling": "attention", "layer": "mix"},
        {"pooling": "mean", "layer": 1, "finetune": False},
    ],
)
def test_it_can_be_trained_and_assembled_again(changed, tmp_path) -> None:
    asked = recipe()
    made = asked.model_copy(update={"model": asked.model.model_copy(update=changed)}).prepare(tmp_path)
    made.objective.loss(made.model, next(iter(made.train)), None).total.backward()
    assert all((one.grad is not None) == one.requires_grad for one in made.model.parameters())
    assembled = made.recipe.assemble(tmp_path)
    for name, weight in made.model.state_dict().items():
        assert torch.equal(weight, assembled.state_dict()[name]), name
    assert made.recipe.prepare(tmp_path).recipe == made.recipe


@pytest.mark.parametrize("tune", [True, False])
def test_a_bert_is_taken_along_and_may_be_gone(tune, bert_run, tmp_path) -> None:
    run, folder = tmp_path / "bert", tmp_path / "run"
    shutil.copytree(bert_run, run)
    asked = recipe(model=BertClassifierModel(pretrained=run, finetune=tune, pooling="mean"))
    made = asked.prepare(folder)
    section = made.recipe.model
    assert (section.layers, section.width, section.heads, section.max_positions) == (2, 8, 4, 50)
    theirs = MaskedLMRecipe(
        name="bert",
        data=BuiltInDocuments(examples=20),
        model=masked_lm.MaskedLMModel(layers=2, width=8, heads=4, max_positions=50),
    ).assemble(run)
    kept = made.model.features.bert
    assert kept.encoder.blocks[0].self.project.heads == 4
    torch.testing.assert_close(kept.words.detach(), 1.5 * theirs.bert.words.detach())
    torch.testing.assert_close(kept.pooler.weight.detach(), 1.5 * theirs.bert.pooler.weight.detach())
    assert made.objective.tokenizer.fingerprint == Tokenizer.load(run / "tokenizer.json").fingerprint
    shutil.rmtree(run)
    for again in (made.recipe, asked):  # as it is resumed, and as it is where the first try was killed
        resumed = again.prepare(folder)
        assert resumed.recipe == made.recipe
        assert all(map(torch.equal, resumed.model.state_dict().values(), made.model.state_dict().values()))
    assert made.recipe.assemble(folder).features.bert.width == 8


def test_what_does_not_fit_is_refused_in_words(bert_run, tmp_path) -> None:
    with pytest.raises(
        SettingError, match=r"model\.width: width = 16 does not fit the BERT of .*, which has width = 8"
    ):
        recipe(model=BertClassifierModel(pretrained=bert_run, width=16)).prepare(tmp_path / "a")
    with pytest.raises(SettingError, match=r"is not a run folder\. Name the folder of a run of the recipe bert"):
        recipe(model=BertClassifierModel(pretrained=tmp_path / "nowhere")).prepare(tmp_path / "b")
    assert not (tmp_path / "b" / PRETRAINED).exists()
    write_recipe(recipe(), tmp_path / "recipe.toml")
    with pytest.raises(SettingError, match="task 'classification'"):
        recipe(model=BertClassifierModel(pretrained=tmp_path)).prepare(tmp_path / "c")
    with pytest.raises(SettingError, match="got layer 3, expected 0 to 2, or 'mix'"):
        recipe(model=BertClassifierModel(pretrained=bert_run, layer=3, pooling="cls")).prepare(tmp_path / "d")


@pytest.mark.parametrize("tune", [True, False])
def test_a_tagger_goes_on_from_a_bert(tune, bert_run, tmp_path) -> None:
    asked = tagging.TaggingRecipe(
        name="test",
        data=tagging.BuiltInTagged(examples=20, valid=5),
        model=tagging.BertTaggerModel(pretrained=bert_run, finetune=tune, layer=None if tune else "mix", dropout=0.0),
        train=TrainSettings(prefetch=0),
    )
    made = asked.prepare(tmp_path)
    assert made.model.features.bert.width == 8 and made.recipe.prepare(tmp_path).recipe == made.recipe
    batch = next(iter(made.train))
    optimiser = torch.optim.AdamW([one for one in made.model.parameters() if one.requires_grad], 0.02)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        losses.append(made.objective.loss(made.model, batch, None).total)
        losses[-1].backward()
        assert all((one.grad is not None) == one.requires_grad for one in made.model.parameters())
        optimiser.step()
    assert losses[-1] < 0.7 * losses[0]
    assert [len(one.got.split()) for one in made.objective.outputs(made.model, batch)] == [
        len(one.expected.split()) for one in made.objective.outputs(made.model, batch)
    ]


def test_a_taggers_words_are_told_apart_by_their_neighbours(tmp_path) -> None:
    """One word, two tags by the word before it."""
    path = tmp_path / "train.conll"
    pairs = [("a DET", "train NOUN"), ("to PART", "train VERB")]
    path.write_text("".join(f"{one}\n{two}\n\n" for one, two in pairs * 4), encoding="utf-8")
    own = tagging.BertTaggerModel(layers=1, width=16, heads=2, dropout=0.0)
    data = tagging.ConllFile(train=path, valid=path)
    made = tagging.TaggingRecipe(name="test", data=data, model=own, train=TrainSettings(prefetch=0)).prepare(
        tmp_path / "run"
    )
    optimiser = torch.optim.AdamW(made.model.parameters(), 0.01)
    batch = next(iter(made.train))
    for _ in range(40):
        optimiser.zero_grad()
        made.objective.loss(made.model, batch, None).total.backward()
        optimiser.step()
    with torch.no_grad():
        assert made.objective.summary(made.objective.measure(made.model, batch, None).sums)["accuracy"] == 1.0


def test_long_texts_are_cut_at_the_positions(tmp_path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text("text\tlabel\n" + f"{'word ' * 60}\tgood\nshort\tbad\nshort\tgood\n", encoding="utf-8")
    made = recipe(data=LabelTable(train=path, valid=path)).prepare(tmp_path / "run")
    assert "1 training examples cut to 40 tokens" in made.notes
    for batch in made.train:
        made.objective.loss(made.model, batch, None)


def test_pairs_of_texts_are_told_apart_by_segment(tmp_path) -> None:
    """Which of two words comes first, across two texts: nothing but segments and positions says."""
    path = tmp_path / "pairs.tsv"
    rows = [("a", "b", "yes"), ("b", "a", "no"), ("a", "a", "yes"), ("b", "b", "no")] * 4
    path.write_text("text\tother\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    made = recipe(data=LabelTable(train=path, valid=path, text_pair="other")).prepare(tmp_path / "run")
    optimiser = torch.optim.AdamW(made.model.parameters(), 3e-3)
    for _ in range(40):
        for batch in made.train:
            assert batch.segments.any()
            optimiser.zero_grad()
            made.objective.loss(made.model, batch, None).total.backward()
            optimiser.step()
    made.model.eval()
    with torch.no_grad():
        sums = [made.objective.measure(made.model, batch, None).sums for batch in made.valid(0, 1)]
    found = made.objective.summary({name: sum(one[name] for one in sums) for name in sums[0]})
    assert found["accuracy"] == 1.0
