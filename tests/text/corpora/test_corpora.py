"""Corpora: what each reader yields, again and again, and the file and line of everything it refuses."""

import builtins
import gzip
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from regard.errors import CorpusError, SettingError
from regard.text import (
    AnswerRows,
    Chain,
    DictRows,
    LabelledRows,
    Labels,
    ParallelCorpus,
    TableFile,
    TagFile,
    TextDocuments,
    TranslationRows,
)
from regard.text.examples import Answered, Document, Labelled, Tagged, Translation

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str) -> Path:
        data = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


def refused(corpus: Iterable[Any], where: str, *said: str) -> None:
    with pytest.raises(CorpusError) as caught:
        list(corpus)
    assert caught.value.where == where
    for words in said:
        assert words in str(caught.value)


# two parallel files


def test_parallel_files(write: Write) -> None:
    corpus = ParallelCorpus(
        write("en", "He hit me .\nhello\n"),
        write("fr", "Il m' a frappé .\nbonjour\n"),
        write("al", "1-2 0-0 1-3 2-1\n\n"),
    )
    expected = [
        Translation("He hit me .", "Il m' a frappé .", ((0, 0), (1, 2), (1, 3), (2, 1))),
        Translation("hello", "bonjour", ()),
    ]
    assert list(corpus) == list(corpus) == expected
    assert [path.name for path in corpus.sources] == ["en", "fr", "al"]
    assert list(ParallelCorpus(corpus.source, corpus.target))[1] == Translation("hello", "bonjour", None)


@pytest.mark.parametrize("short", ["en", "fr", "al"])
def test_files_of_different_lengths(write: Write, short: str) -> None:
    paths = {name: write(name, "a\n" if name != "al" else "0-0\n") for name in ("en", "fr", "al")}
    for name, path in paths.items():
        if name != short:
            path.write_bytes(path.read_bytes() * 3)
    other = next(str(path) for name, path in paths.items() if name != short)
    corpus = ParallelCorpus(*paths.values())  # type: ignore[arg-type]
    refused(corpus, f"{paths[short]}:1", "The file ends after line 1", str(other), str(paths[short]))


def test_blank_lines(write: Write) -> None:
    en, fr = write("en", "a\n\nb\n \nc\n"), write("fr", "A\n\nB\nX\nC\n")
    refused(ParallelCorpus(en, fr), f"{en}:4", "blank", 'blank="skip"')
    corpus = ParallelCorpus(en, fr, blank="skip")
    assert [pair.source for pair in corpus] == ["a", "b", "c"]
    assert corpus.skipped.count == 2
    assert [place.split(": ")[0] for place in corpus.skipped.places] == [f"{en}:2", f"{en}:4"]


def test_a_long_line_takes_its_pair_with_it(write: Write) -> None:
    en, fr = write("en", "a\nb\nc\n"), write("fr", "A\n" + "B" * 50 + "\nC\n")
    corpus = ParallelCorpus(en, fr, max_line=20)
    assert [(pair.source, pair.target) for pair in corpus] == [("a", "A"), ("c", "C")]
    assert corpus.skipped.places == [f"{fr}:2: a line of more than 20 characters"]


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ("0-0\n1_1\n", "link '1_1'"),
        ("0-0\n2-0\n", "source word below 2"),
        ("0-0\n0-1\n", "target word below 1"),
        ("\n-1-0\n", "link '-1-0'"),
    ],
)
def test_bad_links(write: Write, links: str, said: str) -> None:
    path = write("al", links)
    refused(ParallelCorpus(write("en", "a b\nc d\n"), write("fr", "A\nC\n"), path), f"{path}:2", said)


# tables


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", 'id\ten\tfr\n1\ta "quoted\tA\n2\tb\tB, b\n'),
        ("t.csv", 'id,en,fr\n1,"a ""quoted",A\n2,b,"B, b"\n'),
        ("t.jsonl", '{"en": "a \\"quoted", "fr": "A"}\n\n{"en": "b", "fr": "B, b", "id": 2}\n'),
    ],
)
def test_translations_from_tables(write: Write, name: str, content: str, packed: str) -> None:
    corpus = TranslationRows(write(name + packed, content), source="en", target="fr")
    assert list(corpus) == list(corpus) == [Translation('a "quoted', "A"), Translation("b", "B, b")]


def test_columns_by_number_and_by_given_names(write: Write) -> None:
    path = write("t.tsv", "a\tA\nb\tB\n")
    assert next(iter(TranslationRows(TableFile(path, header=None), source=1, target=0))) == Translation("A", "a")
    named = TableFile(path, header=("en", "fr"))
    assert next(iter(TranslationRows(named, source="en", target="fr"))) == Translation("a", "A")
    odd = write("t.data", "a\tA\n")
    assert len(list(TranslationRows(TableFile(odd, format="tsv", header=None), source=0, target=1))) == 1


def test_csv_line_numbers_count_line_ends_in_fields(write: Write) -> None:
    path = write("t.csv", 'en,fr\n"a\n\nb","A"\nx,y,z\n')
    refused(TranslationRows(path, source="en", target="fr"), f"{path}:5", "3 fields", "2 (en, fr)")
    path = write("u.csv", 'en,fr\n"a\nb","A"\n"c\nd",\n')
    refused(TranslationRows(path, source="en", target="fr"), f"{path}:4 (fr)", "blank")
    assert list(TranslationRows(path, source="en", target="fr", blank="skip")) == [Translation("a\nb", "A")]


@pytest.mark.parametrize(
    ("name", "content", "line", "said"),
    [
        ("t.tsv", "en\tfr\na\tA\nb\n", 3, "1 fields, expected 2 (en, fr)"),
        ("t.tsv", "en\tde\na\tA\n", 2, "Unknown column 'fr'. Known: de, en."),
        ("t.tsv", "en\ten\na\tA\n", 1, "column 'en' twice"),
        ("t.csv", 'en,fr\na,"A\n', 2, "unexpected end of data"),
        ("t.csv", 'en,fr\na,"A"b\n', 2, "Invalid CSV"),
        ("t.jsonl", '{"en": "a", "fr": "A"}\n{"en": }\n', 2, "Invalid JSON: Expecting value at column 8"),
        ("t.jsonl", '{"en": "a", "fr": "A"}\n\n["en"]\n', 3, "JSON of type list"),
        ("t.jsonl", '{"en": "a"}\n', 1, "Unknown column 'fr'"),
        ("t.jsonl", '{"en": "a", "fr": 3}\n', 1, "'fr' = 3 (int), expected text"),
        ("t.jsonl", '{"en": "a", "fr": null}\n', 1, "(NoneType), expected text"),
        ("t.jsonl", '{"en": "a", "fr": "\\ud800"}\n', 1, "a lone surrogate"),
    ],
)
def test_bad_tables(write: Write, name: str, content: str, line: int, said: str) -> None:
    path = write(name, content)
    refused(TranslationRows(path, source="en", target="fr"), f"{path}:{line}", said)


def test_a_quote_left_open_cannot_swallow_the_file(write: Write) -> None:
    path = write("t.csv", 'en,fr\n"a,A\n' + "b,B\n" * 1000)
    refused(
        TranslationRows(TableFile(path, max_line=100), source="en", target="fr"),
        f"{path}:2",
        "field larger",
        "a quote not closed",
    )
    path = write("u.csv", 'en,fr\n"a\n' + "b" * 200 + '\nc",C\n')
    refused(
        TranslationRows(TableFile(path, max_line=100), source="en", target="fr"),
        f"{path}:3",
        "A quoted field contains a line of more than 100 characters",
    )


def test_long_lines_of_a_table_are_counted(write: Write) -> None:
    corpus = TranslationRows(
        TableFile(write("t.tsv", "en\tfr\na\tA\n" + "b" * 99 + "\tB\n\t\n"), max_line=50), source="en", target="fr"
    )
    assert len(list(corpus)) == 1
    assert corpus.skipped.count == 2
    corpus = TranslationRows(write("u.csv", 'en,fr\n" "," "\na,A\n'), source="en", target="fr")
    assert len(list(corpus)) == 1
    assert corpus.skipped.count == 1


def test_a_file_of_unknown_kind_is_refused(write: Write) -> None:
    with pytest.raises(SettingError, match=r"ends in \.tsv"):
        TranslationRows(write("t.dat", "a"), source="en", target="fr")
    with pytest.raises(SettingError, match="Did you mean 'tsv'"):
        TableFile(write("t.tsv", "a"), format="tvs")  # type: ignore[arg-type]


# rows


def test_rows_of_dicts() -> None:
    corpus = TranslationRows([{"en": "a", "fr": "A", "al": "0-0"}], source="en", target="fr", links="al")
    assert list(corpus) == list(corpus) == [Translation("a", "A", ((0, 0),))]
    assert corpus.sources == ()
    refused(TranslationRows([{"en": "a"}], source="en", target="fr"), "rows, row 0", "Unknown column 'fr'")
    refused(
        TranslationRows(DictRows([["a"]], name="mine"), source="en", target="fr"), "mine, row 0", "a row of type list"
    )  # type: ignore[list-item]


def test_an_iterator_is_refused_a_second_pass() -> None:
    corpus = TranslationRows(iter([{"source": "a", "target": "A"}]))
    assert len(list(corpus)) == 1
    refused(corpus, "rows", "the second pass", "list(rows)")


def test_a_named_data_set_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingError, match=r"pip install 'regard\[datasets\]'"):
        DictRows.load_dataset("user/some-data")


def test_a_named_data_set_is_loaded_by_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        @staticmethod
        def load_dataset(name: str, split: str, **settings: Any) -> list[dict[str, str]]:
            return [{"text": f"{name} {split} {settings}", "label": "x"}]

    monkeypatch.setitem(sys.modules, "datasets", Fake)  # type: ignore[arg-type]
    rows = DictRows.load_dataset("user/some-data", split="test", revision="1")
    assert list(LabelledRows(rows)) == [Labelled("user/some-data test {'revision': '1'}", "x")]
    assert next(iter(rows)).where == "user/some-data[test], row 0"


# labels


def test_classified(write: Write) -> None:
    path = write("t.tsv", "text\tmore\tlabel\ngood\tvery\tpos\nbad\tvery\tneg\n")
    assert list(LabelledRows(path)) == [Labelled("good", "pos"), Labelled("bad", "neg")]
    assert next(iter(LabelledRows(path, other="more"))) == Labelled("good", "pos", "very")
    assert Labels.of(one.label for one in LabelledRows(path)) == Labels(("neg", "pos"))
    assert list(LabelledRows([{"text": "a", "label": 3}])) == [Labelled("a", "3")]


def test_labels_are_fixed_by_training(write: Write) -> None:
    path = write("t.tsv", "text\tlabel\ngood\tpositive\nbad\tnegativ\n")
    labels = Labels(("negative", "positive"))
    assert [labels.number(name) for name in labels.names] == [0, 1]
    refused(
        LabelledRows(path, labels=labels),
        f"{path}:3",
        "label 'negativ'",
        "negative, positive",
        "Did you mean 'negative'?",
    )


@pytest.mark.parametrize("label", ["", None, True, 1.5, ["x"]])
def test_odd_labels(label: object) -> None:
    refused(LabelledRows([{"text": "a", "label": label}]), "rows, row 0", "a label: text or an integer")


def test_half_blank_pairs_of_texts() -> None:
    rows = [{"text": "a", "other": " ", "label": "x"}, {"text": "a", "other": "b", "label": "x"}]
    refused(LabelledRows(rows, other="other"), "rows, row 0 (other)", "blank")
    corpus = LabelledRows(rows, other="other", blank="skip")
    assert len(list(corpus)) == 1
    assert corpus.skipped.count == 1


def test_conll(write: Write) -> None:
    path = write("t.conll", "-DOCSTART- -X- O\n\nHe PRP O\nsaw VBD O\nParis NNP B-LOC\n\n\n. . O")
    assert list(TagFile(path)) == [Tagged(("He", "saw", "Paris"), ("O", "O", "B-LOC")), Tagged((".",), ("O",))]
    assert next(iter(TagFile(path, tag=1))).tags == ("PRP", "VBD", "NNP")
    tabbed = write("t.conllu", "# text = New York\n1\tNew York\tPROPN\n")
    assert list(TagFile(tabbed, word=1, comment="#")) == [Tagged(("New York",), ("PROPN",))]


@pytest.mark.parametrize(
    ("content", "settings", "line", "said"),
    [
        ("a X\nb Y Z\n", {}, 2, "3 columns, expected 2"),
        ("a X\n", {"tag": 2}, 1, "no column 2; the line has 2 columns"),
        ("a\tX\nb\t\n", {}, 2, "word 'b' with tag ''"),
        ("a X\n\nb XX\n", {"labels": Labels(("O", "X"))}, 3, "Did you mean 'X'"),
        ("a X\n" * 9, {"max_words": 5}, 6, "more than 5 words"),
    ],
)
def test_bad_conll(write: Write, content: str, settings: dict[str, Any], line: int, said: str) -> None:
    path = write("t.conll", content)
    refused(TagFile(path, **settings), f"{path}:{line}", said)


# answers


def test_answers(write: Write) -> None:
    rows = [
        {"question": "Who?", "passage": "Ann met Bob.", "start": 8, "end": 11},
        {"question": "Who?", "passage": "Ann met Bob.", "start": 0, "end": "Ann"},
    ]
    path = write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [one.answer for one in AnswerRows(path)] == ["Bob", "Ann"]
    assert next(iter(AnswerRows(path))) == Answered("Who?", "Ann met Bob.", 8, 11)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": "8"}, "'start' = '8', expected an integer"),
        ({"start": True}, "an integer"),
        ({"end": 13}, "an answer from 8 to 13, expected a span within 12"),
        ({"end": 8}, "an answer from 8 to 8"),
        ({"start": -1}, "an answer from -1"),
        ({"end": "Rob"}, "got 'Bob' at character 8 of the passage, expected the answer 'Rob'"),
        ({"end": 1.5}, "an integer, or the answer's text"),
        ({"passage": 3}, "'passage' = 3 (int), expected text"),
    ],
)
def test_bad_answers(write: Write, change: dict[str, Any], said: str) -> None:
    good = {"question": "Who?", "passage": "Ann met Bob.", "start": 8, "end": 11}
    path = write("t.jsonl", json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
    refused(AnswerRows(path), f"{path}:2", said)


# documents


def test_documents(write: Write) -> None:
    path = write("t.txt.gz", "\n\na\n b \n\n \nc\n")
    assert list(TextDocuments(path)) == list(TextDocuments(path)) == [Document(("a", "b")), Document(("c",))]


def test_a_document_without_end_is_cut(write: Write) -> None:
    path = write("t.txt", "".join(f"line {number:04}\n" for number in range(1000)))
    found = list(TextDocuments(path, max_characters=105))
    assert [sentence for one in found for sentence in one.sentences] == [f"line {number:04}" for number in range(1000)]
    assert {len(one.sentences) for one in found} == {10}
    assert max(sum(map(len, one.sentences)) for one in found) <= 105
    assert len(list(TextDocuments(write("u.txt", "x" * 50 + "\ny\n"), max_characters=10))) == 2


def test_long_lines_of_documents_are_counted(write: Write) -> None:
    corpus = Chain((TextDocuments(write("a", "x" * 99 + "\nb\n"), max_line=50), TextDocuments(write("c", "d\n\ne\n"))))
    assert len(list(corpus)) == 3
    assert corpus.skipped.count == 1
    assert [path.name for path in corpus.sources] == ["a", "c"]


def test_options_with_wrong_values_are_refused(tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).write_text("x y\n", encoding="utf-8")
    for setting in ({"blank": "skp"}, {"errors": "ignore"}, {"max_line": 0}):
        with pytest.raises(SettingError):
            list(ParallelCorpus(tmp_path / "a", tmp_path / "b", **setting))


def test_evidence_is_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "good.tsv").write_text("text\tlabel\tevidence\nnot bad\tpos\t0 1\n", encoding="utf-8")
    assert next(iter(LabelledRows(tmp_path / "good.tsv", evidence="evidence"))).evidence == (0, 1)
    (tmp_path / "bad.tsv").write_text("text\tlabel\tevidence\nnot bad\tpos\t2\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"bad\.tsv:2: got 'evidence' = '2', expected word indices below 2"):
        list(LabelledRows(tmp_path / "bad.tsv", evidence="evidence"))
