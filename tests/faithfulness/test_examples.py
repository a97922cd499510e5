"""Examples for an audit, from files and from the built-in corpus, for each kind of model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faithfulness.toys import classifier, filler, language_model, translating
from regard.errors import CorpusError
from regard.faithfulness.examples import built_in_examples, read_examples
from regard.text.examples import Labelled, Translation


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_for_a_classifier(tmp_path: Path) -> None:
    table = written(tmp_path / "a.tsv", "label\ttext\tmother\ngood\tthe cat\tx\nbad\ta dog\ty\ngood\tit\tz\n")
    assert read_examples(table, classifier(), 2) == [Labelled("the cat", "good"), Labelled("a dog", "bad")]
    pairs = written(tmp_path / "a.csv", 'text,other,label\n"the cat, old",a dog,1\n')
    assert read_examples(pairs, classifier(), 9) == [Labelled("the cat, old", "1", "a dog")]
    lines = [{"text": "the other cat", "label": "good"}, {"text": "it", "label": "bad"}]
    objects = written(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert read_examples(objects, classifier(), 9) == [Labelled("the other cat", "good"), Labelled("it", "bad")]


def test_a_text_a_line(tmp_path: Path) -> None:
    plain = written(tmp_path / "a.txt", "the cat\n\na dog\nit\n")
    for adapter in (classifier(), filler(), language_model(), translating()):
        assert read_examples(plain, adapter, 2) == ["the cat", "a dog"]
    pairs = written(tmp_path / "b.txt", "the cat\tle chat\na dog\tun chien\t0-0 1-1\n")
    assert read_examples(pairs, translating(), 9) == [
        ("the cat", "le chat"),
        Translation("a dog", "un chien", ((0, 0), (1, 1))),
    ]


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"Unknown column 'label'. Known: kind, text"):
        read_examples(written(tmp_path / "a.tsv", "text\tkind\nthe cat\tx\n"), classifier(), 9)
    with pytest.raises(CorpusError, match="no text"):
        read_examples(written(tmp_path / "a.txt", "\n\n"), classifier(), 9)
    with pytest.raises(CorpusError):
        read_examples(tmp_path / "none.txt", classifier(), 9)


def test_the_built_in_corpus_knows_links(tmp_path: Path) -> None:
    found = built_in_examples(None, translating(), 3)
    assert len(found) == 3 and all(isinstance(one, Translation) and one.links for one in found)
    assert all(isinstance(one, str) for one in built_in_examples(None, language_model(), 3))
