"""Stores of pictures: scenes and files as they are, found again, refused when they changed; batches of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from regard.errors import CorpusError, SettingError, StoreError
from regard.pictures import (
    NO_REGION,
    Augment,
    CaptionCollator,
    FileImages,
    ImageFolder,
    ImageLabelCollator,
    ImageStore,
    PointingCollator,
    SceneCorpus,
    SceneImages,
    captioned,
    image_store,
    phrase,
)
from regard.text import IGNORED, Epoch, Labels, Tokenizer, WordLevel

SCENES = SceneImages("captioned", 6, "valid", seed=3, gold=True)


def folder_of_images(root: Path, count: int = 3) -> Path:
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((20, 30, 3), 40 * number + (100 if name == "cat" else 0), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


def test_scenes_are_stored_as_they_are(tmp_path) -> None:
    store = ImageStore.build(tmp_path / "s", SCENES)
    assert len(store) == 6 and store.size == 64 and isinstance(store.pixels, np.memmap)
    for index, example in enumerate(SceneCorpus(captioned, 6, "valid", 3)):
        assert np.array_equal(store.pixels[index], example.scene.draw()) and store.texts[index] == example.caption.text
        target, landmark = store.regions(np.array([index]))[0]
        assert np.array_equal(target, example.scene.region([example.caption.target]))
        assert np.array_equal(landmark, example.scene.region([example.caption.landmark]))
        for word, number in zip(example.caption.words, store.words[index], strict=True):
            told = (example.caption.target, example.caption.landmark)
            assert number == (told.index(word.objects[0]) if word.kind in ("shape", "colour") else NO_REGION)


def test_several_processes_make_the_same(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_store, "PARALLEL", 1)
    monkeypatch.setattr(image_store, "BLOCK", 4)
    one, two = (ImageStore.build(tmp_path / str(n), SceneImages("phrase", 10), workers=n) for n in (1, 2))
    assert np.array_equal(one.pixels, two.pixels) and one.texts == two.texts and one.fingerprint == two.fingerprint
    assert np.array_equal(one.packed_regions, two.packed_regions)


def test_a_store_is_found_again_and_refused_where_it_is_another(tmp_path) -> None:
    first = ImageStore.build(tmp_path / "s", SCENES)
    changed = (tmp_path / "s" / "pixels.npy").stat().st_mtime_ns
    assert ImageStore.build(tmp_path / "s", SCENES).fingerprint == first.fingerprint
    assert (tmp_path / "s" / "pixels.npy").stat().st_mtime_ns == changed
    with pytest.raises(StoreError, match="other settings, or of files that have changed"):
        ImageStore.build(tmp_path / "s", SceneImages("captioned", 7, "valid", seed=3, gold=True))
    (tmp_path / "s" / "pixels.npy").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="The pictures cannot be read"):
        ImageStore.build(tmp_path / "s", SCENES)
    assert not list(tmp_path.glob("*.part"))


def test_files_are_squares_and_a_changed_one_is_noticed(tmp_path) -> None:
    files = ImageFolder(folder_of_images(tmp_path / "in")).files
    store = ImageStore.build(tmp_path / "s", FileImages(files, 8))
    assert store.pixels.shape == (6, 8, 8, 3) and store.texts == ("cat",) * 3 + ("dog",) * 3
    assert store.pixels[1].mean() == 140 and store.pixels[3].mean() == 0
    Image.new("RGB", (9, 9)).save(tmp_path / "in" / "cat" / "1.png")
    with pytest.raises(StoreError, match="have changed"):
        ImageStore.build(tmp_path / "s", FileImages(files, 8))


def test_unreadable_files_are_refused_or_skipped(tmp_path) -> None:
    root = folder_of_images(tmp_path / "in")
    (root / "cat" / "0.png").write_text("no image")
    files = ImageFolder(root).files
    with pytest.raises(CorpusError, match=r"0\.png"):
        ImageStore.build(tmp_path / "s", FileImages(files, 8))
    assert not (tmp_path / "s").exists()
    store = ImageStore.build(tmp_path / "s", FileImages(files, 8, "skip"))
    assert len(store) == len(store.pixels) == 5 and "0.png" in store.skipped[0] and store.pixels[0].mean() == 140
    with pytest.raises(CorpusError, match="No image could be read"):
        ImageStore.build(tmp_path / "t", FileImages(files[:1], 8, "skip"))


def test_too_many_pictures_are_refused_before_any_is_made(tmp_path) -> None:
    with pytest.raises(
        SettingError, match=r"2,000,000 pictures of 64 pixels a side, 22\.9 GiB, expected at most 16 GiB"
    ):
        ImageStore.build(tmp_path / "s", SceneImages("captioned", 2_000_000))
    with pytest.raises(CorpusError, match="There are no pictures"):
        ImageStore.build(tmp_path / "s", SceneImages("captioned", 0))


def tokenizer_of(store: ImageStore) -> Tokenizer:
    return Tokenizer.train(WordLevel(200), store.texts)


def test_captions_and_their_regions_stand_side_by_side(tmp_path) -> None:
    store = ImageStore.build(tmp_path / "s", SCENES)
    tokenizer = tokenizer_of(store)
    batch = CaptionCollator(store, tokenizer)(np.array([4, 1]), Epoch(0))
    special = tokenizer.special
    assert batch.pixels.dtype == torch.uint8 and batch.pixels.shape == (2, 64, 64, 3)
    assert torch.equal(batch.pixels[0], torch.from_numpy(np.array(store.pixels[4])))
    for row, index in enumerate((4, 1)):
        ids = list(tokenizer.encode(store.texts[index]).ids)
        assert batch.target_in[row, : len(ids) + 1].tolist() == [special.need("start"), *ids]
        told = batch.target_out[row][batch.target_out[row] != IGNORED].tolist()
        assert told == [*ids, special.need("end")] and batch.target_lengths[row] == len(ids) + 1
        words = store.texts[index].split()
        for place, word in enumerate(words):
            assert batch.words[row, place] == store.words[index][place], word
        assert (batch.words[row, len(words) :] == NO_REGION).all()
    assert batch.count() == batch.tokens == CaptionCollator(store, tokenizer).tokens(np.array([4, 1]), Epoch(0))
    short = CaptionCollator(store, tokenizer, max_length=3)
    assert short.truncated == 6 and short(np.array([0]), Epoch(0)).target_out.shape == (1, 3)
    assert short.fingerprint != CaptionCollator(store, tokenizer).fingerprint


def test_no_rows_make_a_batch_of_no_rows(tmp_path) -> None:
    store = ImageStore.build(tmp_path / "s", SCENES)
    none = np.array([], np.int64)
    batch = CaptionCollator(store, tokenizer_of(store))(none, Epoch(0))
    assert len(batch) == 0 and batch.target_in.shape == (0, 1) and batch.pixels.shape == (0, 64, 64, 3)
    assert len(ImageLabelCollator(store, Labels.of(store.texts))(none, Epoch(0))) == 0


def test_augmentation_is_another_in_each_epoch_and_the_same_in_each_pass(tmp_path) -> None:
    store = ImageStore.build(tmp_path / "s", SceneImages("labelled", 4))
    collate = ImageLabelCollator(store, Labels.of(store.texts), Augment(64))
    rows = np.array([2, 0])
    first, again, later = (collate(rows, Epoch(1, number)).pixels for number in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, later)
    assert torch.equal(collate(rows[1:], Epoch(1)).pixels[0], first[1])  # a row does not depend on the others
    assert np.array_equal(store.pixels[2], ImageStore.build(tmp_path / "s", SceneImages("labelled", 4)).pixels[2])


def test_phrases_have_the_region_to_which_they_refer(tmp_path) -> None:
    store = ImageStore.build(tmp_path / "s", SceneImages("phrase", 3))
    batch = PointingCollator(store, tokenizer_of(store))(np.arange(3), Epoch(0))
    for row, example in enumerate(SceneCorpus(phrase, 3)):
        assert np.array_equal(batch.regions[row].numpy(), example.scene.region([example.target]))
        assert batch.lengths[row] == len(example.text.split()) + 2
    plain = ImageStore.build(tmp_path / "t", SceneImages("labelled", 3))
    with pytest.raises(SettingError, match="no gold regions"):
        PointingCollator(plain, tokenizer_of(store))
