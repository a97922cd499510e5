"""Laws of Batches over every kind of plan: whole epochs, ranks that share them, states to resume from."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import SettingError, ShapeError
from regard.text.batches.buckets import Buckets
from regard.text.batches.collate import LabelCollator, TranslationCollator
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenStream
from regard.text.batches.masking import Masking, MaskingCollator, WholeWords
from regard.text.batches.next_sentence import NextSentenceCollator
from regard.text.batches.plan import Batches, LazySequence, fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.store.columns import Columns
from regard.text.tokenizers.specials import SpecialIds
from text.batches.batching import KINDS, SPECIAL, Counted, assert_same, numbered, rows_of

kind = st.sampled_from(sorted(KINDS))
seeds = st.integers(0, 2**63 - 1)
ranks = st.integers(1, 9)


@given(kind, seeds, ranks, st.integers(0, 3))
def test_the_rows_of_all_ranks_are_the_global_batch(kind, seed, ranks, epoch):
    plan, collate = KINDS[kind]
    whole = Batches(plan, collate, seed)
    parts = [Batches(plan, collate, seed, rank, ranks) for rank in range(ranks)]
    for batches in (whole, *parts):
        batches.load_state_dict({**batches.state_dict(), "epoch": epoch})
    for everything, *shares in zip(whole, *parts, strict=True):
        rows = rows_of(everything)
        for rank, share in enumerate(shares):
            assert rows_of(share) == rows[rank::ranks]
            assert share.all_tokens == everything.all_tokens == everything.tokens
        assert sum(share.tokens for share in shares) == everything.tokens


@given(kind, seeds, st.data())
def test_a_state_resumes_bit_for_bit_whatever_the_number_of_ranks(kind, seed, data):
    plan, collate = KINDS[kind]
    before, after = data.draw(ranks), data.draw(ranks)
    rank = data.draw(st.integers(0, after - 1))
    batches = Batches(plan, collate, seed, data.draw(st.integers(0, before - 1)), before)
    epochs, stop = data.draw(st.integers(0, 1)), data.draw(st.integers(0, len(batches)))
    for _ in range(epochs):
        list(batches)
    for _ in zip(range(min(stop, len(batches))), batches, strict=False):
        pass
    state = json.loads(json.dumps(batches.state_dict()))

    expected = Batches(plan, collate, seed, rank, after)
    for _ in range(epochs):
        list(expected)
    expected_rest = list(expected)[state["batch"] :]
    counted = Counted(collate)
    resumed = Batches(plan, counted, seed, rank, after)
    resumed.load_state_dict(state)
    assert counted.calls == 0
    rest = list(resumed)
    assert counted.calls == len(rest) == len(expected_rest)
    for got, wanted in zip([*rest, next(iter(resumed))], [*expected_rest, next(iter(expected))], strict=True):
        assert_same(got, wanted)


def test_the_state_is_the_same_on_every_rank_and_counts_what_was_handed_out():
    plan, collate = KINDS["translate"]
    parts = [Batches(plan, collate, 3, rank, 4, prefetch=rank) for rank in range(4)]
    for number, _ in enumerate(zip(*parts, strict=True)):
        states = [part.state_dict() for part in parts]
        assert all(state == states[0] for state in states)
        assert (states[0]["epoch"], states[0]["batch"]) == (0, number + 1)
    assert [part.epoch for part in parts] == [1] * 4


def test_a_state_after_the_last_batch_leaves_nothing_of_its_epoch():
    plan, collate = KINDS["label"]
    batches = Batches(plan, collate)
    iterator = iter(batches)
    for _ in range(len(batches)):
        next(iterator)
    resumed = Batches(plan, collate)
    resumed.load_state_dict(batches.state_dict())
    assert resumed.epoch == 0
    assert list(resumed) == []
    assert resumed.epoch == 1


def test_iterating_again_after_a_break_continues():
    plan, collate = KINDS["fill"]
    expected = list(Batches(plan, collate))
    batches = Batches(plan, collate, prefetch=3)
    got = [next(iter(batches)), next(iter(batches)), *batches]
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)


def test_epochs_differ_and_seeds_too():
    for name, (plan, _) in KINDS.items():
        first, again, later, other = (plan(Epoch(*key)) for key in ((0, 0), (0, 0), (0, 1), (1, 0)))
        flat = [[batch.tolist() for batch in batches] for batches in (first, again, later, other)]
        assert flat[0] == flat[1]
        assert (flat[0] != flat[2] and flat[0] != flat[3]) or name == "lanes"


def test_a_rank_without_rows_still_gets_a_batch():
    for plan, collate in KINDS.values():
        batches = Batches(plan, collate, rank=39, ranks=40)
        for batch in batches:
            assert len(batch) == batch.tokens == 0
            table = batch.source if hasattr(batch, "source") else batch.inputs
            assert table.shape[0] == 0 and table.shape[1] >= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [({"seed": 1}, "seed 1"), ({"plan": "x"}, "plan x"), ({"data": "x"}, "data x"), ({"batch": 99}, "batch 99")],
)
def test_states_of_others_are_refused(change, words):
    batches = Batches(*KINDS["translate"])
    with pytest.raises(SettingError, match=words):
        batches.load_state_dict({**batches.state_dict(), **change})
    with pytest.raises(SettingError, match="keys"):
        batches.load_state_dict({"epoch": 1})


def test_fingerprints_tell_kinds_apart():
    assert len({plan.fingerprint for plan, _ in KINDS.values()}) == len(KINDS)
    one = np.arange(100_000)
    assert fingerprint(one) == fingerprint(one.astype(np.uint32)) != fingerprint(one + 1)
    assert len({fingerprint(one[:-1]), fingerprint("1"), fingerprint(1), fingerprint(None)}) == 4


def test_an_invalidated_iterator_is_refused():
    batches = Batches(*KINDS["label"])
    old = iter(batches)
    next(old)
    next(iter(batches))
    with pytest.raises(SettingError, match="no longer valid"):
        next(old)
    young = iter(batches)
    batches.load_state_dict({**batches.state_dict(), "batch": 0})
    with pytest.raises(SettingError, match="no longer valid"):
        next(young)


def test_settings_out_of_range_are_refused():
    plan, collate = KINDS["label"]
    for settings in ({"rank": 2, "ranks": 2}, {"rank": -1}, {"prefetch": -1}, {"seed": -1}):
        with pytest.raises(SettingError):
            Batches(plan, collate, **settings)


def test_lazy_sequences_compute_on_access():
    asked = []
    squares = LazySequence(5, lambda number: asked.append(number) or np.array([number**2]))
    assert squares[-1].tolist() == [16] and asked == [4]
    assert [int(value[0]) for value in squares[1:3]] == [1, 4]
    with pytest.raises(IndexError):
        squares[5]


def test_plans_and_collators_that_do_not_match_are_refused():
    columns = Columns({"source": numbered([3, 4]), "target": numbered([4, 2]), "text": numbered([3, 4])})
    collate = TranslationCollator(columns, SPECIAL)
    with pytest.raises(SettingError, match=r"a plan \(such as Buckets\), then a collator"):
        Batches(collate, Buckets(collate.lengths, 20))
    one, other = TokenStream.plain(columns), TokenStream.lines(columns, 3)
    with pytest.raises(SettingError, match="Lanes and BlockCollator have a different stream"):
        Batches(Lanes(one, 2, 2), BlockCollator(other))
    masked = Columns({"text": numbered([3, 4])})
    pairs = NextSentenceCollator(masked, Masking(SPECIAL, 2000))
    with pytest.raises(ShapeError, match="the rows of NextSentencePairs"):
        next(iter(Batches(Buckets(np.array([3, 4]), 20), pairs)))


def test_something_else_than_special_ids_is_refused():
    columns = Columns({"source": numbered([3]), "target": numbered([4]), "text": numbered([3]), "label": numbered([1])})
    with pytest.raises(SettingError, match=r"Pass tokenizer\.special"):
        TranslationCollator(columns, object())
    with pytest.raises(SettingError, match="has no 'cls' token"):
        LabelCollator(columns, SpecialIds(pad=0))
    with pytest.raises(SettingError, match="more than the 1 special"):
        TranslationCollator(columns, SPECIAL, max_length=1)
    with pytest.raises(SettingError, match="words=whitespace_words"):
        MaskingCollator(columns, Masking(SPECIAL, 2000, units=WholeWords()))(np.array([0]), Epoch(0))
    with pytest.raises(SettingError, match="seed='a'"):
        Epoch("a")
