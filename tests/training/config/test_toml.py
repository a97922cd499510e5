"""TOML: what is written reads back as it was, and every setting is found on its line."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import SettingError
from regard.runs.toml import MAX_DEPTH, dump, find_line, format_value, parse

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
tables: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(texts, values, max_size=4),
    lambda inner: st.dictionaries(texts, inner | values | st.lists(inner, max_size=2), max_size=4),
    max_leaves=6,
)


@given(tables)
def test_written_data_read_back_equal(data: dict[str, Any]) -> None:
    assert repr(tomllib.loads(dump(data))) == repr(_plain_first(data))  # repr tells 1 from 1.0 and 0.0 from -0.0


def _plain_first(data: dict[str, Any]) -> dict[str, Any]:
    """The order in which it is written, which is the one it is read in."""
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    return plain | {key: _plain_first(value) for key, value in data.items() if isinstance(value, dict)}


def test_it_reads_as_a_person_would_write_it() -> None:
    data = {"name": "a", "model": {"inner": {"x": None}, "odd key": [1, 2.5]}, "rate": 1e-3, "empty": {}, "on": True}
    assert (
        dump(data)
        == """\
name = "a"
rate = 0.001
on = true

[model]
"odd key" = [1, 2.5]

[model.inner]
x = "none"

[empty]
"""
    )
    assert dump({}) == ""


def test_what_toml_cannot_say_is_no_value() -> None:
    with pytest.raises(TypeError, match="bytes"):
        format_value(b"")


TEXT = '''\
# a = 1
name = "x"

[a.b]  # the section
c = """
[a]
d = 1
"""
e = [
  1,
  2,
]
f.g = { h = 1 }

[[list]]
x = 1
[[list]]
x = 2
[last]'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("name",), 2),
        (("a",), 4),
        (("a", "b"), 4),
        (("a", "b", "c"), 5),
        (("a", "b", "e"), 9),
        (("a", "b", "e", 1), 9),
        (("a", "b", "f"), 13),
        (("a", "b", "f", "g", "h"), 13),
        (("list",), 15),
        (("list", 0, "x"), 16),
        (("list", 1), 17),
        (("list", 1, "x"), 18),
        (("last",), 19),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_setting_is_found_on_its_line(keys: tuple[str | int, ...], line: int, ending: str) -> None:
    assert find_line(TEXT.replace("\n", ending), keys) == line


@given(
    st.lists(st.sampled_from(["", "# said", "[t{}]", "k{} = 1", 'k{} = """\n\n"""', "k{} = [\n1,\n\n2]"]), max_size=30)
)
def test_the_line_of_each_of_many_settings(shapes: list[str]) -> None:
    text, line, section, expected = "", 1, (), {}
    for number, shape in enumerate(shapes):
        piece = shape.format(number) + "\n"
        if shape.startswith("["):
            section = (f"t{number}",)
            expected[section] = line
        elif shape.startswith("k"):
            expected[(*section, f"k{number}")] = line
        text, line = text + piece, line + piece.count("\n")
    assert {keys: find_line(text, keys) for keys in expected} == expected


def test_a_setting_is_found_quickly_in_a_long_file() -> None:
    text = "".join(f"k{number} = 1\n" for number in range(3000))
    assert find_line(text, ("k2500",)) == 2501


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a = 1\nsteps = 3 epochs\n",
            "r.toml:2: Invalid TOML: 'steps = 3 epochs' (expected newline or end of document after a statement, "
            'column 11). Text goes in quotes: key = "value".',
        ),
        ("\n[a\n", "r.toml:2: Invalid TOML: '[a' (expected ']' at the end of a table declaration, column 3)."),
        ("a = 1\na = 2\n", "r.toml:2: Invalid TOML: 'a = 2' (cannot overwrite a value, column 6)."),
        ('a = "x', "r.toml: The file is not valid TOML: Unterminated string (at end of document)."),
        ("b=1\na = 2024-01-01\n", "r.toml:2: got the date or time 2024-01-01, expected text in quotes, or a number."),
        ("b=1\na = 0x" + "f" * 5000, "r.toml:2: got an integer of more than 64 bits, expected a smaller one."),
        ("a = " + "[" * 60 + "]" * 60, f"r.toml:1: got more than {MAX_DEPTH} nested lists or sections"),
        ("a = " + "[" * 9999 + "]" * 9999, "r.toml: Lists are nested more than"),
        ("a = " + "9" * 9999, "r.toml: The file is not valid TOML: Exceeds the limit"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse(text, "r.toml")
    assert str(caught.value).startswith(said)
