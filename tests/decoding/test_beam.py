"""Laws of beam search: wide enough it finds the true best by any rule, one wide it is greedy, rows never mix."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from decoding.toys import END, Toy, begin, every_text
from regard.decoding import Beam, Greedy, Hypothesis, LengthPenalty, Rules
from regard.decoding.beam import log_coverage
from regard.decoding.hypotheses import CHUNK, chunked_topk
from regard.errors import SettingError

MEAN = LengthPenalty(1.0, start=0)
PENALTIES = [LengthPenalty(), LengthPenalty(0.6), MEAN, LengthPenalty(2.0), LengthPenalty(-1.0, start=0)]
RULES = {
    "plain": Rules(END, 4),
    "minimum length": Rules(END, 4, min_length=2),
    "no end": Rules(None, 3),
    "never ends early": Rules(END, 3, min_length=3),
    "one token banned": Rules(END, 4, banned=[[2]]),
    "sequences banned": Rules(END, 4, banned=[[2, 3], [1, 3], [3, 1, 1], [2, 2], [3, END]]),
    "end banned": Rules(END, 3, banned=[[END]]),
    "prefix": Rules(END, 4, prefix=[[3, 2], [], [1]]),
    "prefix that is banned": Rules(END, 4, prefix=[[3, 2], [1], [2]], banned=[[3], [2, 1]]),
    "whole prefix": Rules(END, 3, prefix=[[3, 2, 1], [1, 1, 1], [2, 2, 2]]),
    "required": Rules(END, 4, required=[[[3]], [[1, 2]], []]),
    "two required": Rules(END, 4, required=[[[3], [2, 1]], [[1, 2], [2, 3]], [[1], [1, 1]]]),
    "all at once": Rules(
        END, 5, min_length=3, prefix=[[1], [2], []], banned=[[3, 3], [1, 1]], required=[[[3]], [[1, 2]], [[2], [1, 2]]]
    ),
}
NUMBERS = [5, 9, 2]


def search(beam, toy: Toy, rules: Rules, numbers=NUMBERS, attention: bool = False) -> list[list[Hypothesis]]:
    state, first = begin(toy, numbers)
    return beam(toy, state, first, rules, attention)


def scored(toy: Toy, number: int, text: tuple[int, ...], finished: bool, beam: Beam) -> float:
    """A score by its definition."""
    steps = (*text, END) if finished else text
    score = sum(toy.log_probs(number, steps)) / beam.length_penalty(len(steps))
    if beam.coverage_penalty:
        got = np.minimum(toy.weights(number, steps).sum(0), 1)
        score += beam.coverage_penalty * np.log(got[got > 0]).sum()
    return score


def exhaustive(toy: Toy, number: int, rules: Rules, beam: Beam, row: int) -> list[tuple[float, tuple[int, ...], bool]]:
    found = [(scored(toy, number, *one, beam), *one) for one in every_text(toy.size, rules, row)]
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_a_wide_beam_finds_the_true_best(name: str, penalty: LengthPenalty) -> None:
    toy, rules = Toy(4), RULES[name]
    beam = Beam(4**rules.max_length, penalty, n_best=5)
    for row, (number, texts) in enumerate(zip(NUMBERS, search(beam, toy, rules), strict=True)):
        truth = exhaustive(toy, number, rules, beam, row)[:5]
        assert [tuple(text.tokens) for text in texts] == [text for _, text, _ in truth]
        assert [text.finished for text in texts] == [finished for _, _, finished in truth]
        np.testing.assert_allclose([text.score for text in texts], [score for score, _, _ in truth])
        for text in texts:
            steps = [*text.tokens, END] if text.finished else text.tokens
            np.testing.assert_allclose(text.log_probs, toy.log_probs(number, steps))


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_no_row_is_done_too_early(penalty: LengthPenalty) -> None:
    """Rows of many kinds, some of which are done before their texts are as long as they may be."""
    toy, rules, numbers = Toy(3, sharp=2.0), Rules(END, 5), list(range(40))
    for best in (1, 3):
        toy.steps.clear()
        beam = Beam(3**5, penalty, n_best=best)
        for number, texts in zip(numbers, search(beam, toy, rules, numbers), strict=True):
            truth = exhaustive(toy, number, rules, beam, 0)[:best]
            assert [tuple(text.tokens) for text in texts] == [text for _, text, _ in truth]
        assert toy.steps[-1] < 40 * 3**4  # what all rows together would have


@pytest.mark.parametrize("penalty", [LengthPenalty(), LengthPenalty(0.6)], ids=str)
def test_coverage_counts_what_was_left_out(penalty: LengthPenalty) -> None:
    toy, rules, beam = Toy(4, places=3), Rules(END, 4), Beam(256, penalty, coverage_penalty=0.7, n_best=4)
    for row, (number, texts) in enumerate(zip(NUMBERS, search(beam, toy, rules), strict=True)):
        truth = exhaustive(toy, number, rules, beam, row)[:4]
        assert [tuple(text.tokens) for text in texts] == [text for _, text, _ in truth]
        np.testing.assert_allclose([text.score for text in texts], [score for score, _, _ in truth])
    plain = search(replace(beam, coverage_penalty=0.0), toy, rules)
    assert any(one[0].tokens != other[0].tokens for one, other in zip(plain, search(beam, toy, rules), strict=True))


def test_coverage_by_hand() -> None:
    got = log_coverage(torch.tensor([[0.5, 2.0, 0.0], [1.0, 0.25, 0.5]]))
    torch.testing.assert_close(got, torch.tensor([0.5, 0.125]).log())


def test_length_penalties_by_hand() -> None:
    assert [LengthPenalty()(n) for n in (1, 7)] == [1, 1]
    assert LengthPenalty(0.5)(7) == pytest.approx(2**0.5)  # ((5 + 7) / 6)^0.5
    assert [MEAN(n) for n in (1, 7)] == [1, 7]
    assert LengthPenalty(0.6).largest(3, 9) == LengthPenalty(0.6)(9)
    assert LengthPenalty(-0.6).largest(3, 9) == LengthPenalty(-0.6)(3)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if not rules.required])
def test_one_wide_it_is_greedy(name: str, penalty: LengthPenalty) -> None:
    toy, rules = Toy(4, places=3), replace(RULES[name], max_length=9)
    beams, greedy = (search(one, toy, rules, attention=True) for one in (Beam(1, penalty), Greedy()))
    for (one,), (other,) in zip(beams, greedy, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        np.testing.assert_allclose(one.log_probs, other.log_probs)
        assert torch.equal(one.weights, other.weights)


@settings(max_examples=30)
@given(width=st.integers(1, 7), alpha=st.sampled_from([0.0, 0.6, -1.0]), data=st.data())
def test_rows_alone_equal_the_batch(width: int, alpha: float, data: st.DataObject) -> None:
    toy, numbers = Toy(5, places=4, sharp=2.0), data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=5))
    rules = Rules(END, 8, min_length=1, banned=[[2, 2]], prefix=[[n % 4 + 1] * (n % 3) for n in numbers])
    if data.draw(st.booleans()):
        rules = replace(rules, required=[[[n % 3 + 1, 4]] * (n % 2) for n in numbers])
    beam = Beam(width, LengthPenalty(alpha), coverage_penalty=0.2, n_best=min(3, width))
    together = search(beam, toy, rules, numbers, attention=True)
    for row, number in enumerate(numbers):
        (alone,) = search(beam, toy, rules.select([row]), [number], attention=True)
        assert [text.tokens for text in alone] == [text.tokens for text in together[row]]
        np.testing.assert_allclose([text.score for text in alone], [text.score for text in together[row]])
        for one, other in zip(alone, together[row], strict=True):
            torch.testing.assert_close(one.weights, other.weights)


@settings(max_examples=30)
@given(number=st.integers(0, 999), width=st.integers(2, 8), required=st.booleans())
def test_the_best_are_sorted_distinct_and_true(number: int, width: int, required: bool) -> None:
    """Whatever is pruned: every text has the probabilities and the attention that it has."""
    toy = Toy(5, places=4)
    rules = Rules(END, 7, required=[[[2, 3], [4]]] if required else None)
    beam = Beam(width, LengthPenalty(0.6), coverage_penalty=0.1, n_best=width)
    (texts,) = search(beam, toy, rules, [number], attention=True)
    assert texts and [text.score for text in texts] == sorted((text.score for text in texts), reverse=True)
    assert len({(tuple(text.tokens), text.finished) for text in texts}) == len(texts)
    for text in texts:
        steps = [*text.tokens, END] if text.finished else text.tokens
        np.testing.assert_allclose(text.log_probs, toy.log_probs(number, steps))
        np.testing.assert_allclose(text.weights, toy.weights(number, steps))
        assert text.score == pytest.approx(scored(toy, number, tuple(text.tokens), text.finished, beam))
        if required:
            assert 4 in text.tokens and (2, 3) in zip(text.tokens, text.tokens[1:], strict=False)


@settings(max_examples=30)
@given(number=st.integers(0, 999), width=st.integers(1, 3))
def test_a_narrow_beam_meets_what_is_required(number: int, width: int) -> None:
    """However unlikely: all that is required is met as soon as the text is long enough for it."""
    toy = Toy(9, sharp=3.0)
    rules = Rules(END, 6, required=[[[8, 7], [6], [5, 5, 4]]])
    ((text, *_),) = search(Beam(width), toy, rules, [number])
    assert set(text.tokens) == {4, 5, 6, 7, 8} and len(text.tokens) == 6


def test_what_cannot_be_met_breaks_off_unfinished() -> None:
    toy = Toy(4)
    ((text, *rest),) = search(Beam(3, n_best=2), toy, Rules(END, 3, required=[[[1, 2], [3, 3]]]), [4])
    assert not text.finished and not rest and len(text.tokens) == 3
    ((text,),) = search(Beam(3), toy, Rules(END, 5, prefix=[[1, 2]], banned=[[END], [1], [2], [3]]), [4])
    assert (text.tokens, text.finished) == ([1, 2], False)
    assert text.score == pytest.approx(sum(toy.log_probs(4, [1, 2])))


def test_rows_that_are_done_leave() -> None:
    toy, numbers = Toy(6, sharp=4.0), list(range(20))
    texts = search(Beam(3), toy, Rules(END, 30), numbers)
    first, *later = toy.steps
    assert first == 20 and later == sorted(later, reverse=True) and later[0] > 40 and later[-1] <= 6
    assert {text.finished for (text,) in texts} == {True}


def test_it_goes_on_only_as_long_as_something_can_overtake() -> None:
    """Two ways of writing: [] at ln p = ln 0.6, and 1 1 1 ... at ln 0.4 in all, which only its length can help."""
    penalty = LengthPenalty(1.0, start=0)
    toy = _Certain()
    rules = Rules(END, 6)
    assert [len(text.tokens) for text in search(Beam(2), toy, rules, [0])[0]] == [0] and len(toy.steps) == 1
    ((text,),) = search(Beam(2, penalty), toy, rules, [0])
    assert len(text.tokens) == 6 and text.score == pytest.approx(np.log(0.4) / 6)


def test_the_next_token_may_be_the_end() -> None:
    """[] at ln 0.35, or 1 at 2 ln 0.65 where scores are sums times lengths: 3 ln 0.65 would be too little."""
    ((text,),) = search(Beam(2, LengthPenalty(-1.0, start=0)), _Certain(0.35, then=END), Rules(END, 6), [0])
    assert text.tokens == [1] and text.score == pytest.approx(2 * np.log(0.65))


class _Certain(Toy):
    """Ends at once with some probability, or says 1 and then always the same."""

    def __init__(self, ending: float = 0.6, then: int = 1) -> None:
        super().__init__(4)
        self.ending, self.then = ending, then

    def opinion(self, row):
        with np.errstate(divide="ignore"):
            return np.log([self.ending, 1 - self.ending, 0, 0] if len(row) == 2 else np.eye(4)[self.then])


@settings(max_examples=50)
@given(
    rows=st.integers(1, 3), width=st.integers(1, 4), size=st.integers(2, 9 * CHUNK), count=st.integers(1, 5), seed=...
)
def test_the_largest_are_found_in_chunks_too(rows: int, width: int, size: int, count: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed % 2**32)
    scores = torch.randn(rows, width, generator=chance)
    log_probs = torch.randn(rows * width, size, generator=chance)
    log_probs[:, -1] += 3  # the last chunk is shorter than the others
    scores[torch.rand(rows, width, generator=chance) < 0.2] = -inf
    log_probs[torch.rand(rows * width, size, generator=chance) < 0.2] = -inf
    count = min(count, width * size)
    values, places = chunked_topk(scores, log_probs, count)
    whole = (scores.view(-1, 1) + log_probs).view(rows, -1)
    assert torch.equal(values, whole.topk(count).values)
    assert torch.equal(whole.gather(1, places)[values > -inf], values[values > -inf])
    assert all(
        len(set(row[one > -inf].tolist())) == int((one > -inf).sum()) for row, one in zip(places, values, strict=True)
    )


def test_a_large_vocabulary_changes_nothing() -> None:
    toy, rules = Toy(700, sharp=3.0, dtype=torch.float32), Rules(END, 5, banned=[[9], [3, 4]])
    for number, texts in enumerate(search(Beam(4, n_best=4), toy, rules, range(4))):
        for text in texts:
            steps = [*text.tokens, END] if text.finished else text.tokens
            np.testing.assert_allclose(text.log_probs, toy.log_probs(number, steps), rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Beam(0), "width=0, expected at least 1"),
        (lambda: Beam(3, n_best=4), "n_best=4, expected 1 to width=3"),
        (lambda: Beam(coverage_penalty=-1.0), "coverage_penalty=-1.0"),
        (lambda: LengthPenalty(inf), "alpha=inf"),
        (lambda: LengthPenalty(1.0, start=-1), "start=-1"),
        (lambda: search(Beam(coverage_penalty=0.1), Toy(), Rules(END, 3)), "a model that reports no attention"),
        (
            lambda: search(Beam(), Toy(), Rules(END, 3, required=[[[1]]])),
            "required for 1 rows, expected one for each of 3",
        ),
        (lambda: search(Beam(), Toy(), Rules(9, 3)), "token 9, expected 0 to 3"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make()


def test_no_rows_give_no_texts() -> None:
    assert search(Beam(), Toy(), Rules(END, 3), []) == []
