"""Recipes: found by path or name, read with their paths in place, and equal when written and read again."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.errors import RegardError, SettingError
from regard.runs.toml import dump
from regard.training.config import recipes as reading
from regard.training.config.recipes import read_recipe, recipe_to_toml, shipped_recipes, write_recipe
from regard.training.optimisers import SGD
from regard.training.recipe import MovingAverage, Recipe, StartSettings, TrainSettings
from regard.training.schedules import CosineSchedule
from training.config.small_recipes import MINIMAL, TASKS, Counting, Drawn, Files, Inner, Model, Sorting, put
from training.config.test_toml import tables, texts

here = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(source: str | Path, *sets: str) -> Any:
    return read_recipe(source, sets, tasks=TASKS)


def test_a_short_file_is_a_whole_recipe(tmp_path: Path) -> None:
    assert read(put(tmp_path, MINIMAL)) == Counting(name="tiny")
    assert read(put(tmp_path, "\ufeff" + MINIMAL)) == Counting(name="tiny")


def test_the_task_says_which_class(tmp_path: Path) -> None:
    path = put(tmp_path, "version = 1\ntask = 'sort'\nname = 'a'\n[data]\nkind = 'drawn'\nexamples = 3\n")
    assert read(path) == Sorting(task="sort", name="a", data=Drawn(examples=3))


def test_sets_go_on_top(tmp_path: Path) -> None:
    path = put(tmp_path, MINIMAL + "[train]\nsteps = 3\nseed = 4\n")
    got = read(
        path,
        "train.steps=2.5 epochs",
        "train.clip=none",
        "weight_average.kind=ema",
        "optimiser.learning_rate=1",
        "name=b",
    )
    assert got.train == TrainSettings(steps="2.5 epochs", seed=4, clip=None)
    assert got.weight_average == MovingAverage()
    assert got.optimiser.learning_rate == 1.0
    assert got.name == "b"


def test_none_is_none_only_where_it_may_be(tmp_path: Path) -> None:
    got = read(
        put(
            tmp_path,
            MINIMAL + "[weight_average]\nkind = 'none'\n[train]\nclip = 'none'\n[model]\nsizes = [1, 'none']\n",
        )
    )
    assert (got.weight_average.kind, got.train.clip, got.model.sizes) == ("none", None, (1, None))
    got = read(put(tmp_path, MINIMAL + "description = 'none'\n[model]\nspare = 'none'\n[model.inner]\nnote = 'none'\n"))
    assert (got.description, got.model.spare, got.model.inner.note) == ("none", None, None)


PATHS = """
[data]
kind = "files"
train = "a.txt"
valid = "../v.txt"
more = ["/m", "n"]
"""


def test_paths_start_from_where_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recipes", "working", "home"):
        (tmp_path / name).mkdir()
    put(tmp_path / "recipes", MINIMAL + PATHS)
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = Path("../recipes/recipe.toml")
    data = read(file).data
    assert data.train.resolve() == tmp_path / "recipes/a.txt"
    assert data.valid.resolve() == tmp_path / "v.txt"
    assert [path.resolve() for path in data.more] == [Path("/m"), tmp_path / "recipes/n"]
    assert all(path.is_absolute() for path in (data.train, data.valid, *data.more))
    data = read(file, "data.train=a.txt", 'data.more=["~/x", "y"]', "data.valid=0.5").data
    assert data.train == tmp_path / "working/a.txt"
    assert data.more == (tmp_path / "home/x", tmp_path / "working/y")
    assert data.valid == 0.5
    assert read(file, "start.weights=w").start.weights == tmp_path / "working/w"
    assert read(file, "start.weights=none").start.weights is None


def test_without_a_file_a_path_stays_as_it_is() -> None:
    assert StartSettings(weights=Path("~/a")).weights == Path("~/a")


# Finding the file


@pytest.fixture
def two_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    for name in ("plain", "character-gpt"):
        put(folder, MINIMAL.replace("tiny", name), f"{name}.toml")
    put(folder, "", "__init__.py")
    monkeypatch.setattr(reading, "SHIPPED", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_shipped_recipe_goes_by_its_name(two_shipped: Path) -> None:
    assert list(shipped_recipes()) == ["character-gpt", "plain"]
    (two_shipped.parent / "plain").mkdir()  # such as a run of it
    assert read("plain").name == "plain"
    with pytest.raises(SettingError) as caught:
        read("plain", "model.layerz=1", "name=?")
    assert caught.value.where == "--set model.layerz=1"


def test_what_is_neither_a_file_nor_shipped(two_shipped: Path) -> None:
    with pytest.raises(SettingError) as caught:
        read("charactergpt")
    assert str(caught.value) == (
        "There is no recipe 'charactergpt'. Did you mean 'character-gpt'? "
        "Pass a .toml file, or one of character-gpt, plain."
    )
    put(two_shipped.parent, MINIMAL, "own.toml")
    with pytest.raises(SettingError, match=r"Did you mean 'own.toml'\?"):
        read("own")
    put(two_shipped.parent, MINIMAL, "own")
    assert read("own").name == "tiny"


def test_a_path_to_nothing(two_shipped: Path) -> None:
    ending = "Pass a .toml file, or one of character-gpt, plain."
    for path in ("no.toml", "./no", Path("no.toml"), two_shipped / "no.toml"):
        with pytest.raises(SettingError) as caught:
            read(path)
        assert str(caught.value) == f"Could not read the recipe {path}: No such file or directory. {ending}"
    for odd in ("a\0.toml", "x" * 999, "/" + "x" * 999):
        with pytest.raises(SettingError, match=r"Pass a \.toml file"):
            read(odd)


def test_a_folder_is_no_recipe_but_may_hold_one(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        read(tmp_path)
    assert caught.value.problem == f"Could not read the recipe {tmp_path}: Is a directory"
    path = put(tmp_path, MINIMAL)
    with pytest.raises(SettingError) as caught:
        read(tmp_path)
    assert caught.value.advice == f"This folder has one: {path}."


def test_what_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"a = 1\nb = '\xe9'\n")
    with pytest.raises(SettingError, match=f"^{path}:2: The file is not UTF-8: byte 0xe9"):
        read(path)


# Version and task


@pytest.mark.parametrize(
    ("version", "said", "advised"),
    [("7", "7", True), ("0", "0", False), ("'x'", "'x'", False), ("1.0", "1.0", False), ("true", "True", False)],
)
def test_another_version_is_the_first_complaint(tmp_path: Path, version: str, said: str, advised: bool) -> None:
    path = put(tmp_path, f"nothing = 'known'\nversion = {version}\ntask = 3\n")
    with pytest.raises(SettingError) as caught:
        read(path)
    advice = " A newer version of regard wrote it: upgrade regard." if advised else ""
    assert str(caught.value) == f"{path}:2: got version {said}, expected version 1.{advice}"


def test_the_task_must_be_known(tmp_path: Path) -> None:
    path = put(tmp_path, "name = 'a'\n")
    with pytest.raises(SettingError, match=f"^{path}: The recipe names no task. .* Known: count, sort.$"):
        read(path)
    for task in ("coutn", ["count"]):
        put(tmp_path, f"name = 'a'\ntask = {task!r}\n")
        with pytest.raises(SettingError) as caught:
            read(path)
        assert str(caught.value) == f"{path}:2: Unknown task {task!r}. Did you mean 'count'? Known: count, sort."


# Writing


notes = texts.filter(lambda text: text != "none")
numbers = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False) | st.just(1e-300) | st.integers(1, 10**9)
inners = st.builds(
    Inner, note=st.none() | notes, flags=st.dictionaries(texts, numbers | st.integers(-9, 9), max_size=3)
)
models = st.builds(
    Model,
    width=st.just(12),
    pair=st.tuples(st.integers(-(2**63), 2**63 - 1), numbers),
    sizes=st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple),
    inner=inners,
    spare=st.none() | inners,
)
paths = texts.map(lambda text: Path("/data") / text.replace("~", "_"))
files = st.builds(
    Files,
    train=paths,
    valid=paths | st.floats(0, 1, exclude_max=True),
    more=st.lists(paths, max_size=3).map(tuple),
    words=st.lists(st.lists(texts, max_size=3).map(tuple), max_size=3).map(tuple),
)
trains = st.builds(
    TrainSettings,
    steps=st.integers(1, 2**63 - 1) | st.just("3 epochs"),
    clip=st.none() | positive,
    compile=st.booleans() | st.just("graphs"),
    seed=st.just(7),
)
recipes = st.builds(
    Counting,
    name=st.just("a"),
    description=texts,
    train=trains,
    optimiser=st.just(SGD(momentum=0.5)),
    schedule=st.just(CosineSchedule(warmup=3)),
    data=files | st.just(Drawn()),
    model=models,
    start=st.builds(StartSettings, weights=st.none() | paths),
)


@given(recipes)
@here
def test_a_recipe_written_and_read_is_equal(tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "recipe.toml"
    write_recipe(recipe, path)
    assert read(path) == recipe
    assert recipe_to_toml(read(path)) == path.read_bytes().decode() == recipe_to_toml(recipe)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.toml"]


def test_every_setting_is_written_plain_ones_first() -> None:
    text = recipe_to_toml(Counting(name="a", train=TrainSettings(clip=None)))
    assert text.startswith('task = "count"\nversion = 1\nname = "a"\ndescription = ""\n\n[train]\nsteps = 1000\n')
    assert 'clip = "none"\n' in text
    assert '\n\n[weight_average]\nkind = "none"\n\n[evaluate]\n' in text
    assert text.endswith('spare = "none"\n\n[model.inner]\nnote = "here"\n\n[model.inner.flags]\n')


def test_a_path_from_here_is_written_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(Counting(name="a", start=StartSettings(weights=Path("w"))), Path("r.toml"))
    (tmp_path / "b").mkdir()
    (tmp_path / "r.toml").rename(tmp_path / "b/r.toml")
    assert read("b/r.toml").start.weights == tmp_path / "w"


def test_what_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^model.inner.note: The text 'none' cannot be written"):
        recipe_to_toml(Counting(name="a", model=Model(inner=Inner(note="none"))))
    with pytest.raises(SettingError, match=r"^train.steps: got an integer of more than 64 bits"):
        recipe_to_toml(Counting(name="a", train=TrainSettings(steps=2**63)))
    with pytest.raises(SettingError, match="UTF-8"):
        recipe_to_toml(Counting(name="a", start=StartSettings(weights=Path("caf\udce9"))))
    with pytest.raises(SettingError, match="No such file or directory"):
        write_recipe(Counting(name="a"), tmp_path / "no" / "recipe.toml")


# Whatever comes


known = st.sampled_from(
    "task name version train steps clip data kind valid more words model layers pair sizes inner note flags spare "
    "schedule optimiser betas start weights".split()
)
odd = st.sampled_from(["none", "count", "files", "drawn", "cosine", "~", "~x/y", "", "\0"])
anything = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known | texts, inner, max_size=5),
    max_leaves=12,
)
sets = st.builds("{}={}".format, st.lists(known, min_size=1, max_size=3).map(".".join), anything.map(str))


def outcome(path: Path, *sets: str) -> Recipe | RegardError:
    """What comes of reading: a recipe, or an error that points at the file or a --set and can be printed."""
    try:
        return read(path, *sets)
    except RegardError as error:
        told = error
    assert told.where.startswith((str(path), "--set "))
    assert "pydantic" not in str(told).encode().decode()
    return told


@given(
    st.dictionaries(known | texts, anything, max_size=8), st.sampled_from(["count", "sort"]), st.lists(sets, max_size=3)
)
@here
def test_nothing_but_words_comes_of_any_data(tmp_path: Path, data: dict[str, Any], task: str, sets: list[str]) -> None:
    path = put(tmp_path, dump({**data, "task": task, "name": "a", "version": 1}))
    assert isinstance(outcome(path, *sets), Recipe | SettingError)


@given(recipes, st.data())
@settings(parent=here, max_examples=200)
def test_nothing_but_words_comes_of_a_recipe_with_one_thing_changed(tmp_path: Path, recipe: Recipe, data: Any) -> None:
    content = tomllib.loads(recipe_to_toml(recipe))
    section = content
    while data.draw(st.booleans()) and (deeper := [key for key, value in section.items() if isinstance(value, dict)]):
        section = section[data.draw(st.sampled_from(deeper))]
    key = data.draw(st.sampled_from(sorted(section)) | known | texts if section else known | texts)
    section[key] = data.draw(anything)
    if data.draw(st.booleans()):
        del section[key]
    path = put(tmp_path, dump(content))
    got = outcome(path)
    if isinstance(got, RegardError) and got.where != str(path):
        line = int(got.where.removeprefix(f"{path}:"))
        assert 1 <= line <= len(path.read_text().split("\n"))


@given(st.binary() | texts.map(str.encode) | tables.map(dump).map(str.encode))
@here
def test_nothing_but_words_comes_of_any_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(content)
    assert isinstance(outcome(path), SettingError)  # nothing of it names a task
