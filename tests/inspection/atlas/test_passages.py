"""Texts from files, with links and tags, and the refusal of what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import CorpusError, SettingError
from regard.inspection.atlas.built_in_examples import built_in_passages
from regard.inspection.atlas.passages import Passage, expect_built_in, read_passages, to_passages, with_tags
from regard.runs.run import Run
from regard.text.examples import Translation


def test_one_text_two_texts_and_links(tmp_path: Path) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text("a b\n\nc d\te f\ng h\ti j\t0-1 1-0\n")
    assert read_passages(path) == [
        Passage("a b"),
        Passage("c d", "e f"),
        Passage("g h", "i j", ((0, 1), (1, 0))),
    ]
    assert len(read_passages(path, 2)) == 2


@pytest.mark.parametrize("line", ["a\t", "a\tb\t0-0\tc", "\tb", "a b\tc\t5-0"])
def test_malformed_lines_are_refused_with_their_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text(f"fine\n{line}\n")
    with pytest.raises(CorpusError, match=r"texts\.tsv:2"):
        read_passages(path)


def test_texts_become_passages_and_long_ones_are_truncated() -> None:
    given = ["a", ("b", "c"), Translation("d e f", "g h", ((0, 0), (2, 1))), Passage("x")]
    assert to_passages(given) == [
        Passage("a"),
        Passage("b", "c"),
        Passage("d e f", "g h", ((0, 0), (2, 1))),
        Passage("x"),
    ]
    assert to_passages(given, 2)[2] == Passage("d e", "g h", ((0, 0),))


@pytest.mark.parametrize(
    "content", ["a_DET cat_NN sat_VB\nParis_NNP !_.\n", "a DET\ncat NN\nsat VB\n\nParis NNP\n! .\n"]
)
def test_tags_in_two_formats(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tags"
    path.write_text(content)
    [one] = with_tags([Passage("a cat sat", "Paris!")], path)
    assert one.nouns == (
        (((0, 1), False), ((2, 5), True), ((6, 9), False)),
        (((0, 5), True), ((5, 6), False)),
    )


def test_tags_of_other_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tags"
    path.write_text("a_DET dog_NN\n")
    with pytest.raises(CorpusError, match=r"the tagged word 'dog' .*'cat'"):
        with_tags([Passage("a cat")], path)
    with pytest.raises(CorpusError, match="tags for 1 texts"):
        with_tags([Passage("a dog"), Passage("b")], path)


@pytest.mark.parametrize("kind", ["translates", "reads"])
def test_the_built_in_corpus_knows_its_nouns(kind: str) -> None:
    found = built_in_passages(None, kind, 20)
    assert len(found) == 20 and len(set(found)) == 20
    for one in found:
        assert (one.other is not None) == (one.links is not None) == (kind == "translates")
        nouns = one.nouns[0]
        assert nouns is not None
        assert [one.text[a:b] for (a, b), _ in nouns] == one.text.split()
    assert any(noun for one in found for _, noun in one.nouns[0] or ())


def test_the_built_in_corpus_is_for_runs_trained_on_it(tmp_path: Path) -> None:
    expect_built_in(None, "audit")  # no run of ours: nobody knows
    expect_built_in(Run(tmp_path, "", {"data": {"kind": "built-in"}}), "audit")
    with pytest.raises(SettingError, match=r"trained on files data.*Name a file of text"):
        expect_built_in(Run(tmp_path, "", {"data": {"kind": "files"}}), "audit")
