"""What a verb is given to read: a file, a text, or the name of a file that is not there; and what it may be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.inputs import tell_unknown, texts_of
from regard.errors import CorpusError
from regard.text.tokenizers.kinds import ByteBPE, Words
from regard.text.tokenizers.tokenizer import Tokenizer


def test_a_file_is_its_lines_and_a_text_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("one\n\ntwo words\n", encoding="utf-8")
    assert texts_of(str(file)) == ["one", "", "two words"]
    for text in ("the cat sleeps .", "yes", "3.14", "e.g.", "Mr. Smith", "see notes.txt for more", ""):
        assert texts_of(text) == [text]


@pytest.mark.parametrize("name", ["missing.txt", "data/valid.en", "corpus.fr.gz", "table.tsv"])
def test_the_name_of_a_file_that_is_not_there_is_no_text(name: str) -> None:
    with pytest.raises(CorpusError, match=rf"{name}, and there is no such file.*printf '{name}'"):
        texts_of(name)


def test_words_that_a_model_does_not_know_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    known = Tokenizer.train(Words(50), ["the cat sleeps ."])
    tell_unknown(known, ["the cat sleeps .", "", "the dog sleeps near the cat , dog ."])
    assert capsys.readouterr().err == "regard: the model does not know dog, near, ,: it reads <unk> there\n"
    tell_unknown(known, ["a b c d e f g"])
    assert "a, b, c, d, e and 2 more:" in capsys.readouterr().err
    tell_unknown(known, ["the cat ."])
    tell_unknown(Tokenizer.train(ByteBPE(300), ["the cat"]), ["a dog"])  # nothing is unknown
    assert capsys.readouterr().err == ""
