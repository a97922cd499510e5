"""Every mistake in a recipe is told in words, with the line of the file or the --set that holds it."""

from pathlib import Path

import pytest

from regard.errors import RegardError, SettingError
from regard.runs.renamed_settings import RENAMED
from regard.training.config.recipes import read_recipe
from regard.training.config.schema import alternatives
from regard.training.tasks import TASKS as SHIPPED_TASKS
from training.config.small_recipes import MINIMAL, TASKS, put


def refused(folder: Path, text: str, *sets: str) -> RegardError:
    with pytest.raises(SettingError) as caught:
        read_recipe(put(folder, text), sets, tasks=TASKS)
    return caught.value


MODEL = "layers, heads, width, pair, sizes, inner, spare"


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        # unknown names
        (
            "[model]\nlayerz = 2",
            4,
            f"Unknown setting 'layerz' in [model]. Did you mean 'layers'? Known: {MODEL}.",
        ),
        (
            "[schedule]\nkind = 'cosine'\nwarmupp = 2",
            5,
            "Unknown setting 'warmupp' in [schedule]. Did you mean 'warmup'? "
            "Known: kind, warmup, floor for kind 'cosine'.",
        ),
        (
            "[schedule]\nkind = 'cosine'\ncosine = 2",
            5,
            "Unknown setting 'cosine' in [schedule]. Known: kind, warmup, floor for kind 'cosine'.",
        ),
        (
            "[schedule]\nfloor = 0.5",
            4,
            "Unknown setting 'floor' in [schedule]. Known: kind, warmup for kind 'constant'.",
        ),
        (
            "\n[modle]\nlayers = 2",
            4,
            "Unknown section [modle]. Did you mean 'model'? Known: train, optimiser, schedule, weight_average, "
            "evaluate, checkpoint, log, start, data, model.",
        ),
        (
            "[model.iner]\nnote = 'a'",
            3,
            "Unknown section [model.iner]. Did you mean 'inner'? Known: inner, spare.",
        ),
        (
            "[checkpoint.keep_lats]",
            3,
            "Unknown section [checkpoint.keep_lats]. Did you mean 'keep_last'? Known: every, keep_last.",
        ),
        (
            "nmae = 'a'",
            3,
            "Unknown setting 'nmae'. Did you mean 'name'? Known: task, version, name, description, train, optimiser, "
            "schedule, weight_average, evaluate, checkpoint, log, start, pruned, data, model.",
        ),
        # kinds
        (
            "[schedule]\nwarmup = 3\nkind = 'cosin'",
            5,
            "Unknown kind 'cosin' in [schedule]. Did you mean 'cosine'? "
            "Known: constant, linear, cosine, inverse-root, noam, plateau.",
        ),
        ("schedule = 3", 3, "got schedule = 3, expected a section."),
        ("model = [1]", 3, "got model = [1], expected a section."),
        # numbers, text, truth
        ("[model]\nlayers = 0", 4, "got layers = 0 in [model], expected a number of at least 1."),
        ("[model]\nlayers = 2.5", 4, "got layers = 2.5 in [model], expected a whole number."),
        ("[model]\nlayers = '2'", 4, 'got layers = "2" in [model], expected a whole number.'),
        ("[model]\nlayers = true", 4, "got layers = true in [model], expected a whole number."),
        ("[optimiser]\nlearning_rate = 0", 4, "got learning_rate = 0 in [optimiser], expected a number above 0."),
        ("[optimiser]\nlearning_rate = inf", 4, "got learning_rate = inf in [optimiser], expected a finite number."),
        ("[optimiser]\nbetas = [0.9, 1.0]", 4, "got betas[1] = 1.0 in [optimiser], expected a number below 1."),
        (
            "[optimiser]\nbetas = [0.9]",
            4,
            "got betas = [0.9] in [optimiser], expected a list of 2 or more.",
        ),
        ("[optimiser]\nbetas = [1, 2, 3]", 4, "got betas = [1, 2, 3] in [optimiser], expected a list of at most 2."),
        ("[train]\nclip = 'a'", 4, 'got clip = "a" in [train], expected a number or none.'),
        ("[train]\nclip = -1", 4, "got clip = -1 in [train], expected a number above 0 or none."),
        ("[train]\nseed = 'none'", 4, 'got seed = "none" in [train], expected a whole number.'),
        ("[train]\ncompile = 1", 4, "got compile = 1 in [train], expected true or false or 'graphs'."),
        (
            "[train]\nprecision = 'bf61'",
            4,
            "got precision = \"bf61\" in [train], expected 'float32', 'bf16' or 'fp16'. Did you mean 'bf16'?",
        ),
        (
            "[train]\nsteps = '3 epoch s'",
            4,
            'got steps = "3 epoch s" in [train], expected text such as "3 epochs".',
        ),
        ("[train]\nsteps = 0", 4, "got steps = 0 in [train], expected a number of at least 1."),
        (
            "[train]\nsteps = 1e3",
            4,
            'got steps = 1000.0 in [train], expected a whole number or text such as "3 epochs".',
        ),
        ("description = 3", 3, "got description = 3, expected text in quotes."),
        # the deeper ones
        ("[model.inner]\nnote = 3", 4, "got note = 3 in [model.inner], expected text in quotes or none."),
        ("[model.inner.flags]\nx = 'a'", 4, 'got x = "a" in [model.inner.flags], expected a number.'),
        ("[model]\nsizes = [1, 'a']", 4, 'got sizes[1] = "a" in [model], expected a whole number.'),
        (
            "[data]\nkind = 'files'\ntrain = 'a'\nvalid = true",
            6,
            "got valid = true in [data], expected a path in quotes or a number.",
        ),
        (
            "[data]\nkind = 'files'\ntrain = 'a'\nvalid = 1.5",
            6,
            "got valid = 1.5 in [data], expected a number below 1.",
        ),
        (
            "[data]\nkind = 'files'\ntrain = '~nobody-of-that-name/x'",
            5,
            'got train = "~nobody-of-that-name/x" in [data], expected a path whose ~ is the home folder of a known '
            "user.",
        ),
        (
            "[data]\nkind = 'files'\ntrain = 'a'\nwords = ['a']",
            6,
            'got words[0] = "a" in [data], expected a list.',
        ),
        # what is missing, and what a section refuses as a whole
        ("[data]\nkind = 'files'", 3, "No 'train' in [data], and it has no default."),
        ("\n[model]\nheads = 3", 4, "got heads = 3, expected a divisor of 8. Try 4."),
    ],
)
def test_a_mistake_in_a_file(tmp_path: Path, lines: str, line: int, said: str) -> None:
    error = refused(tmp_path, f"{MINIMAL}{lines}\n")
    assert str(error) == f"{tmp_path / 'recipe.toml'}:{line}: {said}"


@pytest.mark.parametrize(
    ("sets", "where", "came"),
    [
        (["model.layerz=2"], "model.layerz=2", "Unknown setting 'layerz' in [model]"),
        (["modle.layers=2"], "modle.layers=2", "Unknown section [modle]"),
        (["model.layers=0"], "model.layers=0", "layers = 0 in [model]"),
        (["model.layers=0", "model.layers=-1"], "model.layers=-1", "layers = -1 in [model]"),
        (["model={ layers = 0 }"], "model={ layers = 0 }", "layers = 0 in [model]"),
        (["schedule.kind=cosin"], "schedule.kind=cosin", "Unknown kind 'cosin' in [schedule]"),
        (["data.kind=files"], "data.kind=files", "No 'train' in [data], and it has no default"),
        (["optimiser.betas=[0.9, 2]"], "optimiser.betas=[0.9, 2]", "betas[1] = 2 in [optimiser]"),
        (["version=7"], "version=7", "version 7"),
        (["task=coutn"], "task=coutn", "Unknown task 'coutn'"),
        (["task=[1]"], "task=[1]", "Unknown task [1]"),
    ],
)
def test_a_mistake_in_a_set(tmp_path: Path, sets: list[str], where: str, came: str) -> None:
    error = refused(tmp_path, MINIMAL + "[model]\nlayers = 3\n[data]\nkind = 'drawn'\n", *sets)
    assert (error.where, error.problem) == (f"--set {where}", came)


def test_a_setting_of_some_section_is_recognised_without_it(tmp_path: Path) -> None:
    assert refused(tmp_path, MINIMAL, "steps=3").advice == "Did you mean 'train.steps'?"
    assert refused(tmp_path, MINIMAL, "floor=0.1").advice == "Did you mean 'schedule.floor'?"


def test_what_is_wrong_beside_the_first_is_counted_and_misspelt_comes_first(tmp_path: Path) -> None:
    error = refused(tmp_path, MINIMAL + "[model]\nlayers = 0\nheads = 0\nwdith = 3\n")
    assert error.problem == "Unknown setting 'wdith' in [model]"
    assert error.advice == f"Did you mean 'width'? Known: {MODEL}. 2 more settings are wrong."
    assert refused(tmp_path, MINIMAL + "[train]\nsteps = []\nseed = -1\n").advice == "1 more setting is wrong."


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ("[optimiser]\nrate = 0.1", 4, "Setting 'rate' in [optimiser] was renamed to 'learning_rate'."),
        ("[evaluate]\nwatch = 'loss'", 4, "Setting 'watch' in [evaluate] was renamed to 'monitor'."),
        ("[keep]\nevery = 3", 3, "Section [keep] was renamed to [checkpoint]."),
        ("[average]\nkind = 'ema'", 3, "Section [average] was renamed to [weight_average]."),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(tmp_path: Path, lines: str, line: int, said: str) -> None:
    error = refused(tmp_path, f"{MINIMAL}{lines}\n")
    assert str(error) == f"{tmp_path / 'recipe.toml'}:{line}: {said}"


def test_an_old_name_in_a_set_is_refused_with_the_new_one(tmp_path: Path) -> None:
    error = refused(tmp_path, MINIMAL, "train.ahead=3")
    assert str(error) == "--set train.ahead=3: Setting 'ahead' in [train] was renamed to 'prefetch'."
    assert str(refused(tmp_path, MINIMAL, "keep.latest=3")).endswith("Section [keep] was renamed to [checkpoint].")
    for old, new in (("model.states=8", "encoder_dim"), ("model.states=words", "encoder"), ("model.gain=2", None)):
        recipe = "bahdanau" if new == "encoder_dim" else "classifier" if new else "gpt"
        with pytest.raises(SettingError) as caught:
            read_recipe(recipe, [old], tasks=SHIPPED_TASKS)
        renamed = f"was renamed to {new!r}" if new else "Unknown setting 'gain'"
        assert renamed in str(caught.value)


def test_every_new_name_is_a_setting_of_some_task() -> None:
    """The table of renamed settings names none that has been renamed again."""
    fields: dict[str, set[str]] = {}
    for recipe in SHIPPED_TASKS.values():
        for name, field in recipe.model_fields.items():
            fields.setdefault("", set()).add(name)
            for section in alternatives(field.annotation):
                inner = getattr(section, "model_fields", {})
                fields.setdefault(name, set()).update(inner)
                for key, value in inner.items():
                    for part in alternatives(value.annotation):
                        fields.setdefault(f"{name}.{key}", set()).update(getattr(part, "model_fields", {}))
    for old, names in RENAMED.items():
        section, _, name = old.rpartition(".")
        assert set(names) <= fields[section], old
        assert section == "model" or name not in fields[section], old


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    assert len(str(refused(tmp_path, MINIMAL + f"[model]\nlayers = '{'x' * 9999}'\n").problem)) < 120


def test_a_missing_name_or_section(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    assert str(refused(tmp_path, "task = 'count'")) == f"{path}: No 'name', and it has no default."
    assert refused(tmp_path, "task = 'sort'\nname = 'a'").problem == "No section [data], and it has no default"
    lacking = refused(tmp_path, "task = 'sort'\nname = 'a'\n[data]\nexamples = 3")
    assert str(lacking) == f"{path}:3: No kind in [data]. Known: drawn, files."
    text = "text of letters, digits, '.', '_' and '-', a letter or digit first"
    assert refused(tmp_path, "task = 'count'\nname = '-'").expected == text
    assert refused(tmp_path, "task = 'count'\nname = 7").expected == text
