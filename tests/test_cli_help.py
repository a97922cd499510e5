"""The help of every verb: short lines that are not cut, values in words, -h; and options of earlier versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from regard import cli
from regard.cli.command import RENAMED_OPTIONS, Command
from regard.errors import SettingError

GROUP: Any = typer.main.get_command(cli.app)
VALUES = {
    "TEXT",
    "FILE",
    "FOLDER",
    "N",
    "NUMBER",
    "NAME",
    "PATTERN",
    "RUN",
    "SECTION.KEY=VALUE",
    "N|NAME",
    "RUN|FILE",
}  # what options take


def verbs() -> Iterator[tuple[str, ...]]:
    for name, command in GROUP.commands.items():
        yield (name,)
        yield from ((name, inner) for inner in getattr(command, "commands", {}))


VERBS = list(verbs())


def command(words: tuple[str, ...]) -> Any:
    found = GROUP
    for word in words:
        found = found.commands[word]
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words), prog_name="regard", env={"COLUMNS": "80"}, terminal_width=80)


@pytest.mark.parametrize("words", [(), ("tokenize",)])
def test_the_list_of_verbs_is_not_cut_off_at_80_columns(words: tuple[str, ...]) -> None:
    shown = run(*words, "--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert all(len(line) <= 80 for line in shown.splitlines())
    for name, verb in command(words).commands.items():
        first = verb.help.strip().partition("\n")[0]
        assert re.search(rf"^  {name} +{re.escape(first)}$", shown, re.MULTILINE) and first.endswith("."), name


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_names_values_in_words(words: tuple[str, ...]) -> None:
    shown = run(*words, "-h")
    assert shown.exit_code == 0 and shown.stdout == run(*words, "--help").stdout
    assert "-h, --help" in shown.stdout
    assert not re.search(
        r"<|\[\[|\blist\b\[|\bPath\b|\bstr\b|\bint\b|\bfloat\b|x>=|again for more|so many", shown.stdout
    )
    assert "(default" not in shown.stdout and "default: (" not in shown.stdout  # defaults are in brackets
    if "--json" in shown.stdout:
        assert re.search(r"^  --json +Print JSON instead of text\.$", shown.stdout, re.MULTILINE)
    for param in command(words).params:
        if param.param_type_name == "argument":
            assert param.metavar and param.help, param.name
            assert f"  {param.metavar}" in shown.stdout
        elif param.name != "help" and not param.is_flag:
            assert param.metavar in VALUES, f"{param.opts} {param.metavar}"
            assert param.help and param.help.rstrip().endswith("."), param.opts
            assert ("repeatable)" in param.help) == param.multiple, param.opts


def test_each_option_of_an_earlier_version_is_refused_with_its_new_name() -> None:
    known = {words[-1]: (words, command(words)) for words in VERBS if isinstance(command(words), Command)}
    for verb, options in RENAMED_OPTIONS.items():
        words, found = known[verb]
        names = {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
        for old, new in options.items():
            assert old not in names and new in names, (verb, old, new)
            for given in ((old, "1"), (f"{old}=1",)):
                error = run(*words, *given).exception
                assert isinstance(error, SettingError)
                assert str(error) == f"{' '.join(words)}: The option {old} is now called {new}."


def test_a_value_after_two_dashes_is_no_option() -> None:
    assert not isinstance(run("translate", "no-such-run", "--", "--longest").exception, SettingError)


def test_a_misspelt_option_or_verb_is_suggested() -> None:
    assert "--beam" in run("translate", "--beem", "3", "x").stderr
    assert "Did you mean 'translate'" in run("translat").stderr
