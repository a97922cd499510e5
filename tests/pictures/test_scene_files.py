"""Written pictures: what the files hold is what was drawn, whatever the number of processes, or nothing at all."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from regard import cli
from regard.errors import SettingError
from regard.pictures import Scene, caption_scene, decode_runs, read_image, split_of_scene, write_pictures
from regard.pictures.scene_files import PICTURE_VIEWS


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    written = write_pictures(path, 40, seed=4)
    assert written.files == {"train.jsonl": 40, "valid.jsonl": 2, "test.jsonl": 2} and written.examples == 44
    return path


def test_lines_describe_their_pictures_whole(folder: Path) -> None:
    for split in ("train", "valid", "test"):
        for line in lines_of(folder / f"{split}.jsonl"):
            scene = Scene.from_dict(line)
            assert (read_image(folder / line["image"]) == scene.draw()).all()
            assert split_of_scene(scene) == split
            assert line["caption"] == caption_scene(scene).text == " ".join(word["text"] for word in line["words"])
            regions = []
            for number, one in enumerate(line["objects"]):
                region = decode_runs(one["region"], scene.size, scene.size)
                assert (region == scene.region([number])).all()
                left, top, right, bottom = one["box"]
                assert region[top:bottom, left:right].sum() == region.sum()
                regions.append(region)
            for word in line["words"]:
                together = np.logical_or.reduce([regions[number] for number in word["objects"]])
                assert (together == scene.region(word["objects"])).all()
            assert line["question"].endswith("?") and line["answer"] and line["phrase"].startswith("the ")
            assert (line["answer"] == "no") == (line["answer_objects"] == [])
            assert 0 <= line["phrase_object"] < len(regions)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["train", "valid", "test", "train.jsonl", "valid.jsonl", "test.jsonl"]
    )


def test_the_number_of_processes_changes_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "two", 40, seed=4, workers=2)
    monkeypatch.setattr("regard.pictures.scene_files.BLOCK", 7)
    write_pictures(tmp_path / "blocks", 40, seed=4)
    assert contents(tmp_path / "two") == contents(tmp_path / "blocks") == contents(folder)


def test_labelled_pictures_are_class_folders(tmp_path: Path) -> None:
    written = write_pictures(tmp_path, 60, view="labelled-pictures", size=80)
    assert written.files == {"train.jsonl": 60, "valid.jsonl": 3, "test.jsonl": 3, "doubled.jsonl": 3}
    for line in lines_of(tmp_path / "train.jsonl"):
        [label], [number] = line["labels"], line["label_objects"]
        assert line["image"].startswith(f"train/{label}/") and line["objects"][number]["shape"] == label
        assert read_image(tmp_path / line["image"]).shape == (80, 80, 3)
    for line in lines_of(tmp_path / "doubled.jsonl"):
        assert [line["objects"][at]["shape"] for at in line["label_objects"]] == line["labels"]
        assert len(set(line["labels"])) == 2 and split_of_scene(Scene.from_dict(line)) == "test"


def test_existing_files_are_refused_or_replaced(tmp_path: Path) -> None:
    write_pictures(tmp_path, 5, view="labelled-pictures")
    before = contents(tmp_path)
    with pytest.raises(SettingError, match=r"already contains train\.jsonl\. .*--replace"):
        write_pictures(tmp_path, 5, seed=1)
    assert contents(tmp_path) == before
    write_pictures(tmp_path, 5, seed=1, replace=True)
    assert not (tmp_path / "doubled").exists() and not (tmp_path / "train" / "star").exists()
    assert contents(tmp_path).keys() == {
        *(f"train/{number:06}.png" for number in range(1, 6)),
        *(f"{split}/000001.png" for split in ("valid", "test")),
        *(f"{split}.jsonl" for split in ("train", "valid", "test")),
    }


@pytest.mark.parametrize("name", ["train/mine.txt", "train/cats/000001.png", "doubled/star/notes", "test"])
def test_files_of_others_are_never_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("precious")
    with pytest.raises(SettingError, match=r"did not write|is not a folder"):
        write_pictures(tmp_path, 5, replace=True)
    assert contents(tmp_path).keys() == {name}


def test_a_failure_leaves_everything_as_it_was(tmp_path: Path) -> None:
    write_pictures(tmp_path, 3)
    before = contents(tmp_path)

    def fail(more: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pictures(tmp_path, 6, seed=1, replace=True, progress=fail)
    assert contents(tmp_path) == before and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("setting", [{"pairs": 0}, {"view": "picture"}, {"size": 32}], ids=str)
def test_wrong_settings_are_refused(tmp_path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="corpus: "):
        write_pictures(tmp_path / "new", **{"pairs": 5, **setting})  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingError, match="Could not write to the folder"):
        write_pictures(tmp_path / "file" / "sub", 5)


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, ["corpus", *map(str, words)], prog_name="regard")
    return done.exit_code, done.stdout, str(done.exception or "")


def test_the_command(tmp_path: Path) -> None:
    for view in PICTURE_VIEWS:
        code, out, _ = run(tmp_path / view, "--view", view, "-n", 8, "--size", 72, "--json")
        assert code == 0 and json.loads(out)["files"]["train.jsonl"] == 8 and json.loads(out)["view"] == view
    assert read_image(tmp_path / "pictures" / "train" / "000001.png").shape == (72, 72, 3)
    code, out, _ = run(tmp_path / "pictures", "--view", "pictures", "-n", 4, "--replace")
    assert code == 0 and "train.jsonl\t4" in out and "written per second" in out


def test_the_command_refuses_in_a_sentence(tmp_path: Path) -> None:
    for words, said in [
        (("--view", "picturs"), "Did you mean 'pictures'"),
        (("--view", "prose", "--size", "64"), "--view pictures"),
        (("--view", "pictures", "--size", "8"), "64 to 128"),
    ]:
        code, _, error = run(tmp_path, *words)
        assert code != 0 and said in error
