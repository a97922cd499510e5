"""The section [batches] of the task "language": how a stream of text is cut."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.models.config import GPTConfig
from regard.text import Blocks, Lanes, Stream
from regard.training.recipe import Count, Section


class InBlocks(Section):
    """Stretches of `size` tokens, cut elsewhere in every epoch, `rows` of them a batch; each is read on its own."""

    kind: Literal["blocks"] = "blocks"
    size: Annotated[int, Field(ge=2)] = GPTConfig.longest
    rows: Count = 32

    def plan(self, stream: Stream) -> Blocks:
        return Blocks(stream, self.size, self.rows)


class InLanes(Section):
    """The stream in `lanes` that are read side by side, `size` tokens a batch; each goes on where it ended.

    Where a stream is so short that a lane would end within its first batch, there are fewer of them.
    """

    kind: Literal["lanes"] = "lanes"
    size: Annotated[int, Field(ge=2)] = 32
    lanes: Count = 32

    def plan(self, stream: Stream) -> Lanes:
        return Lanes(stream, self.size, max(1, min(self.lanes, (len(stream) - 1) // self.size)))
