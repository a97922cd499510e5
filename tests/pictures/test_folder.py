"""Folders and tables of images: who is what, which files are refused, skipped and counted, with line numbers."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.errors import CorpusError, SettingError
from regard.pictures import ImageFolder, ImageTable, write_pictures
from regard.text import DictRows, TableFile


def draw(path: Path, level: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (level, level, level)).save(path)
    return path


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    for number, name in enumerate(["rose/b.jpg", "rose/A.PNG", "tulip/deep/er/c.webp", "tulip/d.jpeg"]):
        draw(tmp_path / "flowers" / name, 20 * number)
    for name in ("rose/notes.txt", "tulip/.DS_Store", ".cache/x.png", "README"):
        path = tmp_path / "flowers" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path / "flowers"


def test_class_folders(flowers: Path) -> None:
    folder = ImageFolder(flowers)
    found = [(loaded.label, loaded.file.path.name, int(loaded.pixels[0, 0, 0])) for loaded in folder]
    assert found == [("rose", "A.PNG", 20), ("rose", "b.jpg", 0), ("tulip", "d.jpeg", 60), ("tulip", "c.webp", 40)]
    assert folder.labels.names == ("rose", "tulip") and len(folder) == 4
    assert folder.left_out.count == 1 and "notes.txt" in folder.left_out.places[0]
    assert next(iter(folder)).pixels.shape == (6, 8, 3) and folder.skipped.count == 0


def test_files_that_cannot_be_read_are_refused_or_counted(flowers: Path) -> None:
    (flowers / "rose" / "bad.jpg").write_bytes(b"nonsense")
    os.mkfifo(flowers / "rose" / "pipe.png")
    with pytest.raises(CorpusError, match=r"rose/bad\.jpg: This is not a PNG"):
        list(ImageFolder(flowers))
    folder = ImageFolder(flowers, unreadable="skip")
    for _ in range(2):
        assert len(list(folder)) == 4 and len(folder) == 6
        assert folder.skipped.count == 2
        assert "bad.jpg: This is not a PNG" in folder.skipped.places[0] and "a FIFO" in folder.skipped.places[1]
    assert [file.path.name for file in folder.verify()] == ["A.PNG", "b.jpg", "d.jpeg", "c.webp"]


def test_wrong_folders_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    for name, said in [
        ("none", "Folder not found"),
        ("empty", "no class folders"),
        ("hollow", "no images"),
        ("file", "Could not read the folder"),
    ]:
        with pytest.raises(CorpusError, match=said):
            ImageFolder(tmp_path / name)
    with pytest.raises(SettingError, match="Unknown value of unreadable 'ignore'"):
        ImageFolder(tmp_path / "empty", unreadable="ignore")  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw(tmp_path / "images" / "a.png", 10)
    draw(tmp_path / "images" / "b, c.jpg", 20)
    return tmp_path


def test_tables_of_every_format(table: Path) -> None:
    (table / "t.tsv").write_text("image\tcaption\nimages/a.png\ta dog\nimages/b, c.jpg\ttwo dogs\n")
    (table / "t.csv").write_text('class,image\ndog,images/a.png\ncat,"images/b, c.jpg"\n')
    (table / "bare.tsv").write_text("a dog\timages/a.png\n")
    lines = [{"image": "images/a.png", "label": 3, "captions": ["a dog", "an animal"]}]
    (table / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [loaded.caption for loaded in ImageTable(table / "t.tsv")] == ["a dog", "two dogs"]
    labels = ImageTable(table / "t.csv", caption=None, label="class")
    assert [(one.label, int(one.pixels[0, 0, 0])) for one in labels] == [("dog", 10), ("cat", 20)]
    assert labels.labels.names == ("cat", "dog")
    bare = ImageTable(TableFile(table / "bare.tsv", header=None), image=1, caption=0)
    assert [loaded.caption for loaded in bare] == ["a dog"]
    several = ImageTable(table / "t.jsonl", caption="captions", label="label")
    assert [(one.label, one.caption) for one in several] == [("3", "a dog"), ("3", "an animal")]
    rows = DictRows([{"image": "a.png", "caption": "x"}])
    assert len(list(ImageTable(rows, root=table / "images"))) == 1
    absolute = DictRows([{"image": str(table / "images" / "a.png"), "caption": "x"}])
    assert len(list(ImageTable(absolute))) == 1


def test_errors_name_the_line(table: Path) -> None:
    path = table / "t.tsv"
    path.write_text("image\tcaption\nimages/a.png\ta dog\nimages/none.png\ta cat\n")
    with pytest.raises(CorpusError, match=r"t\.tsv:3: .*images/none\.png: File not found"):
        list(ImageTable(path))
    skipping = ImageTable(path, unreadable="skip")
    assert len(list(skipping)) == 1 and skipping.skipped.count == 1 and "t.tsv:3" in skipping.skipped.places[0]
    for text, said in [
        ("image\tcaption\nimages/a.png\t \n", r"t\.tsv:2: Column 'caption' is blank"),
        ("image\tcaption\n\tx\n", r"t\.tsv:2: Column 'image' is blank"),
        ("images\tcaption\na\tx\n", r"Unknown column 'image'. Did you mean 'images'"),
        ("image\tcaption\n", "The table has no rows"),
        ("", "The file is empty"),
    ]:
        path.write_text(text)
        with pytest.raises(CorpusError, match=said):
            ImageTable(path)
    with pytest.raises(SettingError, match="neither caption nor label"):
        ImageTable(path, caption=None)


def test_overlong_lines_are_counted(table: Path) -> None:
    (table / "t.tsv").write_text(f"image\tcaption\nimages/a.png\t{'x' * 500}\nimages/a.png\ta dog\n")
    found = ImageTable(TableFile(table / "t.tsv", max_line=100))
    assert len(found) == 1 and found.lines_skipped.count == 1


def test_the_built_in_corpus_is_read_as_people_s_images_are(tmp_path: Path) -> None:
    write_pictures(tmp_path / "labelled", 12, view="labelled-pictures")
    write_pictures(tmp_path / "captions", 12)
    folder = ImageFolder(tmp_path / "labelled" / "train")
    assert len(folder) == 12 and all(loaded.pixels.shape == (64, 64, 3) for loaded in folder)
    captions = ImageTable(tmp_path / "captions" / "train.jsonl")
    assert len(captions) == 12 and all(str(loaded.caption).startswith("the ") for loaded in captions)
    assert np.unique([loaded.pixels.mean() for loaded in captions]).size == 12
