"""Laws of streams, lanes and blocks: the stream as written out, every target once, lanes that go on."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard import attend, masks
from regard.errors import SettingError
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenBlocks, TokenStream
from regard.text.batches.plan import Batches
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED
from regard.text.store.columns import Columns
from text.batches.batching import documents_of, numbered

END = 3
lengths = st.lists(st.integers(0, 5), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) > 1)
ends = st.sampled_from([None, END])


def stream_of(sizes, end) -> TokenStream:
    columns = Columns({"text": numbered(sizes)})
    return TokenStream.plain(columns) if end is None else TokenStream.lines(columns, end)


def written_out(sizes, end) -> tuple[list[int], list[int]]:
    """The stream and the text of each of its tokens, the slow and obvious way."""
    column = numbered(sizes)
    if end is None:
        return column.ids.tolist(), []
    tokens, owners = [end], [0]
    for number in range(len(column)):
        tokens += [*column[number].tolist(), end]
        owners += [number] * len(column[number]) + [number + 1]
    return tokens, owners


@given(lengths, ends, st.data())
def test_a_stream_reads_as_if_it_were_written_out(sizes, end, data):
    stream, (tokens, owners) = stream_of(sizes, end), written_out(sizes, end)
    assert len(stream) == len(tokens)
    width = data.draw(st.integers(1, len(tokens)))
    starts = data.draw(st.lists(st.integers(0, len(tokens) - width), max_size=4))
    places = np.array(starts, dtype=np.int64)[:, None] + np.arange(width)
    assert stream.read(places).tolist() == [tokens[start : start + width] for start in starts]
    if end is not None:
        assert stream.texts(places).tolist() == [owners[start : start + width] for start in starts]


def test_documents_are_closed_as_wholes():
    columns = documents_of([2, 0, 1], [2, 1, 3])
    first, second = columns["text"].ids[:3].tolist(), columns["text"].ids[3:].tolist()
    stream = TokenStream.documents(columns, END)
    assert stream.read(np.arange(len(stream))[None]).tolist() == [[END, *first, END, END, *second, END]]
    with pytest.raises(SettingError, match="no document boundaries"):
        TokenStream.documents(Columns({"text": numbered([3])}), END)


@given(lengths, ends, st.integers(1, 7), st.integers(1, 4), st.integers(0, 99), st.sampled_from(["lanes", "blocks"]))
def test_every_token_but_the_first_is_a_target_once_behind_its_own_neighbour(sizes, end, size, rows, seed, kind):
    stream, (tokens, owners) = stream_of(sizes, end), written_out(sizes, end)
    plan = Lanes(stream, size, min(rows, len(stream) - 1)) if kind == "lanes" else TokenBlocks(stream, size, rows)
    seen = []
    for batch in Batches(plan, BlockCollator(stream), seed):
        assert batch.inputs.shape[1] <= size and len(batch) <= rows
        real = batch.targets != IGNORED
        seen += zip(batch.inputs[real].tolist(), batch.targets[real].tolist(), strict=True)
        if end is not None:
            assert (batch.documents[~real] == -1).all()
            for word, owner in zip(batch.inputs[real].tolist(), batch.documents[real].tolist(), strict=True):
                assert owner == owners[tokens.index(word)] or word == END
    assert sorted(seen) == sorted(pairwise(tokens))


@given(st.integers(2, 200), st.integers(1, 7), st.integers(1, 6))
def test_lanes_go_on_and_only_their_last_column_may_be_short(length, size, lanes):
    lanes = min(lanes, length - 1)
    stream = stream_of([length], None)
    batches = list(Batches(Lanes(stream, size, lanes), BlockCollator(stream)))
    assert [batch.carried for batch in batches] == [number > 0 for number in range(len(batches))]
    for before, after in pairwise(batches):
        assert before.indices.tolist() == after.indices.tolist() == list(range(lanes))
        assert before.inputs.shape == (lanes, size) and (before.targets != IGNORED).all()
        going_on = after.targets[:, 0] != IGNORED  # a lane one shorter than the others may have ended
        assert torch.equal(after.inputs[going_on, 0], before.targets[going_on, -1])
    assert (batches[-1].targets == IGNORED).sum(1).max() <= 1


def test_a_rank_keeps_its_lanes_and_a_new_number_of_ranks_finds_them_by_number():
    stream = stream_of([400], None)
    plan, collate = Lanes(stream, size=10, lanes=6), BlockCollator(stream)
    state = Batches(plan, collate).state_dict()
    states: dict[int, int] = {}  # lane -> the token that a recurrent model would read next
    for ranks in (2, 3, 4):
        parts = [Batches(plan, collate, 0, rank, ranks) for rank in range(ranks)]
        for part in parts:
            part.load_state_dict(state)
        readers = [iter(part) for part in parts]
        for _ in range(2):
            shares = [next(reader) for reader in readers]
            assert [share.indices.tolist() for share in shares] == [
                list(range(6))[rank::ranks] for rank in range(ranks)
            ]
            for share in shares:
                for lane, inputs, targets in zip(share.indices.tolist(), share.inputs, share.targets, strict=True):
                    assert share.carried == (lane in states)
                    assert states.get(lane, int(inputs[0])) == int(inputs[0])
                    states[lane] = int(targets[-1])
        state = parts[0].state_dict()
    assert state["batch"] == 6


def test_cuts_move_between_epochs():
    stream = stream_of([1000], None)
    plan = TokenBlocks(stream, size=10, rows=5)
    starts = [frozenset(np.concatenate(list(plan(Epoch(0, number))))[:, 1] % 10) for number in range(20)]
    assert len(set(starts)) > 6
    order = np.concatenate(list(plan(Epoch(0))))[:, 1]
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.3


def test_blocks_read_a_mapped_file_without_copying_it(tmp_path):
    np.arange(10_000, dtype=np.uint16).tofile(tmp_path / "ids")
    ids = np.memmap(tmp_path / "ids", dtype=np.uint16, mode="r")
    stream = TokenStream(ids, np.array([10_000]), end=None)
    assert stream.ids is ids
    batch = next(iter(Batches(TokenBlocks(stream, size=8, rows=2), BlockCollator(stream))))
    assert torch.equal(batch.inputs[0, 1:], batch.targets[0, :-1])


def test_documents_of_a_block_keep_its_texts_apart():
    """The first word of a text is predicted by the end token that opens it, which sees nothing of the text before."""
    stream = stream_of([3, 4], END)
    batch = BlockCollator(stream)(np.array([[0, 1, 10, 0]]), Epoch(0))
    assert batch.documents.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 1]]
    x = torch.nn.functional.one_hot(torch.arange(9)).double()[None]
    seen = attend(x, x, x, mask=masks.Causal() & masks.Documents(batch.documents)).output[0]
    assert seen[4].nonzero().tolist() == [[4]]


@pytest.mark.parametrize(
    "make",
    [
        lambda stream: Lanes(stream, 0, 1),
        lambda stream: Lanes(stream, 1, 0),
        lambda stream: Lanes(stream, 1, 5),
        lambda stream: TokenBlocks(stream, 0, 1),
        lambda stream: TokenBlocks(stream, 3, 0),
        lambda stream: TokenBlocks(stream_of([1], None), 3, 1),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(SettingError):
        make(stream_of([5], None))
