"""Write the picture corpus to files: a PNG and a line of JSON for each scene, by several processes.

`pictures` writes {train,valid,test}/000001.png, ... and {train,valid,test}.jsonl, whose lines have the keys

    image                           the path of the picture, relative to the folder
    size, background, objects       the scene (Scene.from_dict reads it); each object also has its `box` (left, top,
                                    right, bottom in pixels, the last two exclusive) and its visible `region` as run
                                    lengths: start, length, start, length, ... over the pixels row by row
    caption, words                  the caption, and for each word its text, its kind, and the numbers of the objects of
                                    which it speaks: the union of their regions is the word's gold region
    question, answer, answer_objects    "no" has no object
    phrase, phrase_words, phrase_object

`labelled-pictures` writes class folders, {train,valid,test}/star/000001.png, ..., and doubled/000001.png: pictures with
two key shapes, which are for testing alone. Their lines have image, size, background, objects, and `labels` with
`label_objects`: the key shapes, and the objects that show them.

The files are written in a folder aside, which is renamed when all are complete.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from regard.errors import SettingError, unknown
from regard.pictures.render import bounding_box, encode_runs
from regard.pictures.scene import Scene, expect_picture_size
from regard.pictures.scene_corpus import SceneCorpus
from regard.pictures.scene_objects import KEY_SHAPES, SMALLEST
from regard.pictures.scene_rng import SPLITS, SceneRng, SceneSettings
from regard.pictures.scene_views import LabelledScene, ask, captioned, doubled, labelled, refer

HELD_OUT = 2000  # maximum number of examples in valid, test and doubled
BLOCK = 250  # examples that a process writes at once
DIGITS = 6  # of a file name, at least
ASIDE = ".pictures.part"

Described = tuple[Scene, str, dict[str, Any]]  # the scene, its folder within the split, what its line says beside it


class WrittenPictures(NamedTuple):
    """The files of descriptions, with the number of pictures of each, and the total."""

    files: dict[str, int]
    examples: int


class SplitSource(NamedTuple):
    """A split as it is written: the view that draws it, and from which split of the scenes."""

    view: Callable[[SceneRng], Described]
    split: str


def write_pictures(
    folder: Path,
    pairs: int,
    seed: int = 0,
    view: str = "pictures",
    size: int = SMALLEST,
    workers: int = 1,
    replace: bool = False,
    progress: Callable[[int], None] = lambda more: None,
) -> WrittenPictures:
    """Write `pairs` training pictures and the held-out ones; `progress` is called with each number of new pictures.

    Existing files are refused, or replaced with `replace`; folders with files that are not ours are always refused.
    """
    if pairs < 1:
        raise SettingError(f"pairs={pairs}", "1 or more", where="corpus")
    if view not in PICTURE_VIEWS:
        raise unknown(view, PICTURE_VIEWS, kind="view", where="corpus")
    expect_picture_size(size, "corpus")
    parts = PICTURE_VIEWS[view]
    old = _existing(folder)
    if old and not replace:
        raise SettingError(
            f"{folder} already contains {old[0].name}",
            where="corpus",
            advice="Give another folder, or replace the files with --replace.",
        )
    held_out = min(HELD_OUT, max(1, pairs // 20))
    wanted = {name: pairs if name == "train" else held_out for name in parts}
    try:
        with _folder_aside(folder, old) as aside:
            write = partial(_write_block, aside, view, seed, size, max(DIGITS, len(str(pairs))))
            with _in_order(write, _blocks(wanted), workers) as results:
                for name in parts:
                    with (aside / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
                        for lines in (next(results) for _ in range(0, wanted[name], BLOCK)):
                            file.writelines(lines)
                            progress(len(lines))
    except OSError as error:
        raise SettingError(f"Could not write to the folder {folder}: {error.strerror}", where="corpus") from error
    return WrittenPictures({f"{name}.jsonl": number for name, number in wanted.items()}, sum(wanted.values()))


def _blocks(wanted: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """What the processes share out: the name of a split, and the first and last example of a block."""
    for name, number in wanted.items():
        for start in range(0, number, BLOCK):
            yield name, start, min(start + BLOCK, number)


@contextmanager
def _in_order(
    write: Callable[..., list[str]], blocks: Iterator[tuple[str, int, int]], workers: int
) -> Iterator[Iterator[list[str]]]:
    """The lines of all blocks in order, written in this process or in several."""
    if workers <= 1:
        yield (write(*block) for block in blocks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield pool.map(write, *zip(*blocks, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)


def _write_block(
    aside: Path, view: str, seed: int, size: int, digits: int, name: str, start: int, stop: int
) -> list[str]:
    """Write some pictures of a split; their lines."""
    part = PICTURE_VIEWS[view][name]
    corpus = SceneCorpus(part.view, stop, part.split, seed, SceneSettings(size=size))
    lines = []
    for index in range(start, stop):
        scene, within, told = corpus[index]
        path = Path(name, within, f"{index + 1:0{digits}}.png")
        (aside / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene.draw()).save(aside / path, compress_level=4)
        lines.append(json.dumps({"image": path.as_posix(), **_scene_fields(scene), **told}) + "\n")
    return lines


def _scene_fields(scene: Scene) -> dict[str, Any]:
    fields = scene.to_dict()
    for number, one in enumerate(fields["objects"]):
        region = scene.region([number])
        one |= {"box": bounding_box(region), "region": encode_runs(region)}
    return fields


def described(rng: SceneRng) -> Described:
    """A scene with its caption, a question and a phrase."""
    scene, caption = (example := captioned(rng)).scene, example.caption
    asked, phrase = ask(rng, scene), refer(rng, scene)
    return (
        scene,
        "",
        {
            "caption": caption.text,
            "words": [{"text": word.text, "kind": word.kind, "objects": word.objects} for word in caption.words],
            "question": asked.question,
            "answer": asked.answer,
            "answer_objects": asked.objects,
            "phrase": phrase.text,
            "phrase_words": [{"text": word.text, "kind": word.kind, "objects": word.objects} for word in phrase.words],
            "phrase_object": phrase.target,
        },
    )


def classed(rng: SceneRng) -> Described:
    """A scene with one key shape, for the folder of that shape."""
    return _with_labels(example := labelled(rng), example.label)


def two_classes(rng: SceneRng) -> Described:
    """A scene with two key shapes."""
    return _with_labels(doubled(rng), "")


def _with_labels(example: LabelledScene, within: str) -> Described:
    return example.scene, within, {"labels": example.labels, "label_objects": example.objects}


PICTURE_VIEWS: dict[str, dict[str, SplitSource]] = {
    "pictures": {split: SplitSource(described, split) for split in SPLITS},
    "labelled-pictures": {split: SplitSource(classed, split) for split in SPLITS}
    | {"doubled": SplitSource(two_classes, "test")},
}


def _existing(folder: Path) -> list[Path]:
    """What the picture views wrote into a folder before; a folder of those names with other files is refused."""
    names = (*SPLITS, "doubled")
    found = [folder / f"{name}.jsonl" for name in names if (folder / f"{name}.jsonl").exists()]
    for path in (folder / name for name in names):
        if path.is_symlink() or path.is_file():
            raise SettingError(f"{path} is not a folder", where="corpus", advice="Give another folder.")
        if path.is_dir():
            strange = next((file for file in sorted(path.rglob("*")) if not _is_ours(file.relative_to(path))), None)
            if strange is not None:
                problem = f"{path} contains files that `regard corpus` did not write, such as {strange.name}"
                raise SettingError(problem, where="corpus", advice="Give another folder.")
            found.append(path)
    return found


def _is_ours(path: Path) -> bool:
    """Whether this is a name that the picture views give: 000001.png, star, star/000001.png."""
    *classes, last = path.parts
    if not classes and last in KEY_SHAPES:
        return True
    return len(classes) <= 1 and set(classes) <= set(KEY_SHAPES) and re.fullmatch(r"\d{6,}\.png", last) is not None


@contextmanager
def _folder_aside(folder: Path, old: list[Path]) -> Iterator[Path]:
    """A new folder within the folder; what is written to it takes the place of the old files when all went well."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / ASIDE
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
    aside.mkdir()
    try:
        yield aside
        new = sorted(aside.iterdir())
        replaced = aside / "replaced"
        replaced.mkdir()
        try:
            for path in old:
                path.rename(replaced / path.name)
            for path in new:
                path.rename(folder / path.name)
        except BaseException:
            for path in replaced.iterdir():
                if not (folder / path.name).exists():
                    path.rename(folder / path.name)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
