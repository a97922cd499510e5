"""Extractive question answering corpora (as SQuAD) from rows: questions with answer spans in a passage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.errors import CorpusError
from regard.text.corpora.corpus import RowCorpus
from regard.text.corpora.tables import ColumnName, TableRow
from regard.text.examples import Answered


@dataclass(slots=True)
class AnswerRows(RowCorpus):
    """Questions about passages. `end` names the column of the end of the answer, or of its text."""

    question: ColumnName = "question"
    passage: ColumnName = "passage"
    start: ColumnName = "start"
    end: ColumnName = "end"

    def __iter__(self) -> Iterator[Answered]:
        for row in self.iterate_rows():
            question, passage = row.text(self.question), row.text(self.passage)
            start, end = _integer(row, self.start), row.get(self.end)
            if isinstance(end, str):
                if passage[start : start + len(end)] != end:
                    found = f"{passage[start : start + len(end)]!r} at character {start} of the passage"
                    raise CorpusError(found, f"the answer {end!r}", where=row.where)
                end = start + len(end)
            elif not isinstance(end, int) or isinstance(end, bool):
                raise CorpusError(f"{self.end!r} = {end!r}", "an integer, or the answer's text", where=row.where)
            if not 0 <= start < end <= len(passage):
                raise CorpusError(
                    f"an answer from {start} to {end}", f"a span within {len(passage)} characters", where=row.where
                )
            yield Answered(question, passage, start, end)


def _integer(row: TableRow, name: ColumnName) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorpusError(f"{name!r} = {value!r}", "an integer", where=row.where)
    return value
