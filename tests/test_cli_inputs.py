"""What a verb is given to read: a file, a text, or the name of a file that is not there; and what it may be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.inputs import read_texts, warn_oov
from regard.errors import CorpusError
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import ByteBPE, WordLevel


def test_a_file_is_its_lines_and_a_text_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("one\n\ntwo words\n", encoding="utf-8")
    assert read_texts(str(file)) == ["one", "", "two words"]
    for text in ("the cat sleeps .", "yes", "3.14", "e.g.", "Mr. Smith", "see notes.txt for more", ""):
        assert read_texts(text) == [text]


@pytest.mark.parametrize("name", ["missing.txt", "data/valid.en", "corpus.fr.gz", "table.tsv"])
def test_the_name_of_a_missing_file_is_not_taken_for_a_text(name: str) -> None:
    with pytest.raises(CorpusError, match=rf"File not found: {name}.*printf '{name}'"):
        read_texts(name)


def test_out_of_vocabulary_words_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    known = Tokenizer.train(WordLevel(50), ["the cat sleeps ."])
    warn_oov(known, ["the cat sleeps .", "", "the dog sleeps near the cat , dog ."])
    assert capsys.readouterr().err == "regard: out of vocabulary, read as <unk>: dog, near, ,\n"
    warn_oov(known, ["a b c d e f g"])
    assert ": a, b, c, d, e and 2 more" in capsys.readouterr().err
    warn_oov(known, ["the cat ."])
    warn_oov(Tokenizer.train(ByteBPE(300), ["the cat"]), ["a dog"])  # nothing is unknown
    assert capsys.readouterr().err == ""
