"""Questions whose answers are stretches of a passage, from rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.errors import CorpusError
from regard.text.corpora.corpus import RowCorpus
from regard.text.corpora.tables import Name, Row
from regard.text.examples import Answered


@dataclass(slots=True)
class Answers(RowCorpus):
    """Questions about passages. `end` names the column of where the answer ends, or of the answer's own text."""

    question: Name = "question"
    passage: Name = "passage"
    start: Name = "start"
    end: Name = "end"

    def __iter__(self) -> Iterator[Answered]:
        for row in self.each():
            question, passage = row.text(self.question), row.text(self.passage)
            start, end = _integer(row, self.start), row.get(self.end)
            if isinstance(end, str):
                if passage[start : start + len(end)] != end:
                    came = f"{passage[start : start + len(end)]!r} at character {start} of the passage"
                    raise CorpusError(came, f"the answer {end!r}", where=row.where)
                end = start + len(end)
            elif not isinstance(end, int) or isinstance(end, bool):
                raise CorpusError(f"{self.end!r} = {end!r}", "an integer, or the answer's text", where=row.where)
            if not 0 <= start < end <= len(passage):
                came = f"an answer from {start} to {end}"
                raise CorpusError(came, f"a stretch within {len(passage)} characters", where=row.where)
            yield Answered(question, passage, start, end)


def _integer(row: Row, name: Name) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorpusError(f"{name!r} = {value!r}", "an integer", where=row.where)
    return value
