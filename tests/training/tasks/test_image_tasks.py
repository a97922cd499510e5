"""Tasks on pictures: trainable as they are, the same for the same recipe, resumed bit for bit; metrics; refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from regard.decoding import Greedy, Rules
from regard.errors import CorpusError, SettingError, StoreError
from regard.pictures import NO_REGION, CaptionBatch
from regard.runs import Run
from regard.text import IGNORED
from regard.training import load_recipe, train
from regard.training.failures import read_batch, save_batch
from regard.training.objectives.captioning import gold_weight
from regard.training.recipe import CheckpointSettings, EvaluateSettings, TrainSettings
from regard.training.tasks.captioning import CaptioningRecipe, CaptioningSettings
from regard.training.tasks.image_classification import ImageClassificationRecipe
from regard.training.tasks.image_data import (
    CaptionBatches,
    CaptionedScenes,
    CaptionTable,
    ImageBatches,
    ImageFolderData,
    LabelledImageTable,
    LabelledScenes,
    PhraseScenes,
    RandomAugment,
)
from regard.training.tasks.image_models import (
    ImageClassifierModel,
    PhrasePointerModel,
    RecurrentCaptionerModel,
    TransformerCaptionerModel,
)
from regard.training.tasks.pointing import PointingRecipe

SMALL = {"width": 8, "layers": 1, "heads": 2}
FEW = TrainSettings(steps=4, threads=1)
OFTEN, EACH = CheckpointSettings(every=2), EvaluateSettings(every=2)
RECIPES = {
    "captioning": lambda **more: CaptioningRecipe(
        **{
            "name": "test",
            "data": CaptionedScenes(examples=20, valid=6),
            "model": RecurrentCaptionerModel(patch=8, word_dim=4, hidden=8, attention_dim=4, dropout=0.1, **SMALL),
            "objective": CaptioningSettings(doubly_stochastic=0.1),
            "batches": CaptionBatches(rows=8),
            "train": FEW,
            "checkpoint": OFTEN,
            "evaluate": EACH,
            **more,
        }
    ),
    "image-classification": lambda **more: ImageClassificationRecipe(
        **{
            "name": "test",
            "data": LabelledScenes(examples=20, valid=6),
            "model": ImageClassifierModel(patch=16, registers=1, dropout=0.1, **SMALL),
            "batches": ImageBatches(rows=8),
            "augment": RandomAugment(flip=0.5),
            "train": FEW,
            "checkpoint": OFTEN,
            "evaluate": EACH,
            **more,
        }
    ),
    "pointing": lambda **more: PointingRecipe(
        **{
            "name": "test",
            "data": PhraseScenes(examples=20, valid=6),
            "model": PhrasePointerModel(patch=8, phrase_layers=1, **SMALL),
            "batches": ImageBatches(rows=8),
            "train": FEW,
            "checkpoint": OFTEN,
            "evaluate": EACH,
            **more,
        }
    ),
}
by_task = pytest.mark.parametrize("task", RECIPES)


def only(batches):
    """All rows of an epoch as one batch."""
    rows = np.sort(np.concatenate([batch.indices.numpy() for batch in batches]))
    return batches.collate(rows, batches._epoch)


def quiet(line: str) -> None:
    pass


@by_task
def test_a_recipe_trains_every_weight_and_measures_what_it_says(task: str, tmp_path) -> None:
    prepared = RECIPES[task]().prepare(tmp_path)
    batch = next(iter(prepared.train))
    prepared.objective.loss(prepared.model, batch, None).total.backward()
    assert all(weight.grad is not None for weight in prepared.model.parameters())
    assert prepared.notes[0] == "20 training pictures of 64 pixels, 6 for validation"
    prepared.model.eval()
    with torch.no_grad():
        batch = only(prepared.valid(0, 1))
        found = prepared.objective.summary(prepared.objective.measure(prepared.model, batch, None).sums)
        outputs = prepared.objective.outputs(prepared.model, batch)
        texts = prepared.objective.text_metrics(outputs)
        empty = prepared.train.collate(np.array([], np.int64), prepared.train._epoch)
        nothing = prepared.objective.measure(prepared.model, empty, None).sums
    assert found.keys() | texts.keys() == prepared.objective.metrics.keys() and len(outputs) == 6
    assert all(float(value.sum()) == 0 for value in nothing.values())


@by_task
def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(task: str, tmp_path) -> None:
    often = EvaluateSettings(every=2)  # the best of the same evaluations
    train(RECIPES[task](evaluate=often), tmp_path / "whole", notify=quiet)
    train(RECIPES[task](train=TrainSettings(steps=2, threads=1), evaluate=often), tmp_path / "parts", notify=quiet)
    train(load_recipe(tmp_path / "parts", ["train.steps=4"]), tmp_path / "parts", resume=True, notify=quiet)
    steps = [tmp_path / name / "state" / "step-00000004" / "tensors" for name in ("whole", "parts")]
    for file in steps[0].iterdir():
        one, other = load_file(file), load_file(steps[1] / file.name)
        assert all(torch.equal(one[name], other[name]) for name in one | other), file.name
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole | parts)
    loaded = Run.open(tmp_path / "whole").model()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in loaded.named_parameters())


@by_task
def test_ranks_share_the_batches_and_the_sums(task: str, tmp_path) -> None:
    whole = RECIPES[task]().prepare(tmp_path)
    parts = [RECIPES[task]().prepare(tmp_path, rank, 2) for rank in range(2)]
    for batch, *shares in zip(whole.train, *(part.train for part in parts), strict=True):
        assert sorted(batch.indices.tolist()) == sorted(one for share in shares for one in share.indices.tolist())
        assert {share.all_tokens for share in shares} == {batch.tokens} == {sum(share.tokens for share in shares)}
        for share in shares:
            assert torch.equal(share.pixels[0], batch.pixels[batch.indices.tolist().index(int(share.indices[0]))])
        together = whole.objective.loss(whole.model.eval(), batch, None).total
        apart = sum(whole.objective.loss(whole.model, share, None).total for share in shares)
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-4)


def test_the_transformer_captioner_is_a_kind_of_model(tmp_path) -> None:
    model = TransformerCaptionerModel(patch=8, decoder_layers=1, **SMALL)
    recipe = RECIPES["captioning"](model=model, evaluate=EvaluateSettings(monitor="exact", generations=2))
    ended = train(recipe, tmp_path / "run", notify=quiet)
    assert {"loss", "exact", "bleu", "gold_weight", "gold_words"} <= ended.metrics.keys()


def test_the_gold_weight_is_the_attention_inside_the_region() -> None:
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]])
    regions = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    regions[0, 0, :2, :2] = True  # the first of 2 x 2 cells, the whole of it
    regions[0, 1, 2:, :] = True
    regions[0, 1, 2, :] = False  # half of each cell of the lower row
    words = torch.tensor([[1, 0, NO_REGION]])
    torch.testing.assert_close(gold_weight(weights, regions, words, 2), torch.tensor([[0.35, 1.0, 0.0]]))


def test_exact_captions_are_those_that_greedy_search_finds(tmp_path) -> None:
    prepared = RECIPES["captioning"]().prepare(tmp_path)
    model = prepared.model.eval()
    with torch.no_grad():
        model.softmax.bias[prepared.objective.tokenizer.special.need("end")] += 0.5  # so that some captions end
    batch = only(prepared.valid(0, 1))
    end = prepared.objective.tokenizer.special.need("end")
    with torch.no_grad():
        first = torch.full((len(batch),), int(batch.target_in[0, 0]))
        written = Greedy()(model, model.start(batch.pixels), first, Rules(end, max_length=8))
        ids = [best.tokens for (best,) in written]
        longest = max(map(len, ids)) + 1
        target = torch.full((len(batch), longest), IGNORED)
        for row, some in enumerate(ids):
            target[row, : len(some) + 1] = torch.tensor([*some, end])
        given = target.where(target != IGNORED, 0).roll(1, 1)
        given[:, 0] = batch.target_in[0, 0]
        lengths = torch.tensor([len(some) + 1 for some in ids])
        said = CaptionBatch(
            batch.indices, batch.pixels, given, target, lengths, batch.regions, torch.full_like(target, NO_REGION)
        )
        found = prepared.objective.summary(prepared.objective.measure(model, said, None).sums)
    assert found["exact"] == pytest.approx(sum(best.finished for (best,) in written) / len(written))


def test_a_failed_batch_of_pictures_is_read_again(tmp_path) -> None:
    batch = next(iter(RECIPES["captioning"]().prepare(tmp_path).train))
    save_batch(batch, tmp_path / "batch.safetensors")
    assert torch.equal(read_batch(tmp_path / "batch.safetensors").pixels, batch.pixels)


def images(root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 10) -> Path:
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for at in range(count):
            pixels = np.full((24, 30, 3), 60 * number + at, np.uint8)
            Image.fromarray(pixels).save(root / name / f"{at}.png")
    return root


def files_recipe(data, **more):
    model = ImageClassifierModel(encoder="conv", patch=8, pooling="attention", **SMALL)
    return RECIPES["image-classification"](data=data, model=model, **more)


def test_class_folders_are_classes_and_each_is_held_out_from(tmp_path) -> None:
    data = ImageFolderData(train=images(tmp_path / "in"), valid=0.2, size=16)
    prepared = files_recipe(data).prepare(tmp_path / "run")
    assert prepared.recipe.data.labels == ["cat", "dog"]
    assert prepared.notes[0] == "16 training pictures of 16 pixels, 4 for validation"
    batch = only(prepared.valid(0, 1))
    assert sorted(batch.labels.tolist()) == [0, 0, 1, 1]
    again = files_recipe(data).prepare(tmp_path / "again")
    same = only(again.valid(0, 1))
    assert torch.equal(same.pixels, batch.pixels)
    train(files_recipe(data), tmp_path / "trained", notify=quiet)
    assert Run.open(tmp_path / "trained").labels.names == ("cat", "dog")
    (tmp_path / "in" / "cat" / "0.png").unlink()
    with pytest.raises(StoreError, match="files that have changed"):
        files_recipe(data).prepare(tmp_path / "run")


def test_a_table_of_labels_and_one_of_captions(tmp_path) -> None:
    images(tmp_path)
    rows = [f"cat/{at}.png\tfine\ta cat in grey {at}" for at in range(10)]
    rows += [f"dog/{at}.png\tgood\ta dog" for at in range(10)]
    (tmp_path / "t.tsv").write_text("image\tlabel\tcaption\n" + "\n".join(rows) + "\n")
    labelled = files_recipe(LabelledImageTable(train=tmp_path / "t.tsv", size=16)).prepare(tmp_path / "a")
    assert labelled.recipe.data.labels == ["fine", "good"] and len(labelled.train.collate.store) == 18
    recipe = RECIPES["captioning"](data=CaptionTable(train=tmp_path / "t.tsv", size=16))
    prepared = recipe.prepare(tmp_path / "b")
    assert "gold_weight" not in prepared.objective.metrics
    batch = only(prepared.valid(0, 1))
    assert batch.regions is None and batch.pixels.shape == (2, 16, 16, 3)
    train(recipe, tmp_path / "c", notify=quiet)


def test_captions_of_one_picture_stay_on_one_side(tmp_path) -> None:
    images(tmp_path, ("cat",))
    lines = [f'{{"image": "cat/{at}.png", "caption": ["a cat", "the cat {at}", "no dog"]}}' for at in range(10)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    prepared = RECIPES["captioning"](data=CaptionTable(train=tmp_path / "t.jsonl", valid=0.3, size=16)).prepare(
        tmp_path / "r"
    )
    train, valid = prepared.train.collate.store, prepared.valid(0, 1).collate.store
    assert (len(train), len(valid)) == (21, 9)
    assert {int(value) for value in train.pixels[:, 0, 0, 0]}.isdisjoint(int(v) for v in valid.pixels[:, 0, 0, 0])


def test_what_does_not_fit_is_refused_in_words(tmp_path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere: Folder not found"):
        files_recipe(ImageFolderData(train=tmp_path / "nowhere")).prepare(tmp_path / "a")
    (tmp_path / "flat").mkdir()
    with pytest.raises(CorpusError, match="The folder has no class folders"):
        files_recipe(ImageFolderData(train=tmp_path / "flat")).prepare(tmp_path / "b")
    one = images(tmp_path / "one", ("cat",))
    with pytest.raises(SettingError, match=r"data.labels: The classes are cat: two different ones or more are needed"):
        files_recipe(ImageFolderData(train=one, size=16)).prepare(tmp_path / "c")
    two = images(tmp_path / "two", ("cat", "cow"))
    with pytest.raises(CorpusError, match=r"no label 'cow'. Did you mean 'crow'"):
        files_recipe(ImageFolderData(train=two, labels=["cat", "crow"], size=16)).prepare(tmp_path / "d")
    (tmp_path / "t.tsv").write_text("image\tcaption\none/cat/0.png\t\n")
    with pytest.raises(CorpusError, match=r"t\.tsv:2: .*'caption' is blank"):
        RECIPES["captioning"](data=CaptionTable(train=tmp_path / "t.tsv")).prepare(tmp_path / "e")
    (tmp_path / "u.tsv").write_text("image\ttext\none/cat/0.png\ta cat\n")
    with pytest.raises(CorpusError, match=r"caption"):
        RECIPES["captioning"](data=CaptionTable(train=tmp_path / "u.tsv")).prepare(tmp_path / "f")
    model = ImageClassifierModel(patch=32, **SMALL)
    with pytest.raises(SettingError, match="patches of 32 pixels in pictures of 16"):
        RECIPES["image-classification"](data=ImageFolderData(train=two, size=16), model=model).prepare(tmp_path / "g")
    with pytest.raises(SettingError, match=r"augment: got scale"):
        RECIPES["image-classification"](augment=RandomAugment(scale=(0.9, 0.1))).prepare(tmp_path / "h")
