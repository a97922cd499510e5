"""Laws of sampling: as often as the model says, by settings as by definition; a row's chance is its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.toys import END, Toy, begin, every_text
from regard.decoding import Greedy, Hypothesis, Rules, Sample
from regard.errors import SettingError


def sample(search: Sample, toy: Toy, rules: Rules, numbers, attention: bool = False) -> list[list[Hypothesis]]:
    state, first = begin(toy, numbers)
    return search(toy, state, first, rules, attention)


def plain(text: Hypothesis) -> tuple[list[int], list[float], bool]:
    return text.tokens, text.log_probs, text.finished


def filtered(search: Sample, shares: np.ndarray, written=()) -> np.ndarray:
    """What a setting makes of the shares of some tokens, by its definition."""
    shares = shares.copy()
    for token in written:
        shares[token] **= search.repetition_penalty
    shares = shares ** (1 / search.temperature)
    shares /= shares.sum()
    order = np.argsort(-shares)
    if search.top_k is not None:
        shares[order[search.top_k :]] = 0
        shares /= shares.sum()
    if search.top_p is not None:
        before = np.cumsum(shares[order]) - shares[order]
        shares[order[before >= search.top_p]] = 0
        shares /= shares.sum()
    if search.min_p is not None:
        shares[shares < search.min_p * shares.max()] = 0
    return shares / shares.sum()


SETTINGS = [
    Sample(),
    Sample(temperature=0.5),
    Sample(temperature=2.0),
    Sample(top_k=3),
    Sample(top_p=0.7),
    Sample(min_p=0.3),
    Sample(repetition_penalty=3.0),
    Sample(temperature=1.5, top_k=4, top_p=0.8, min_p=0.2, repetition_penalty=2.0),
]


@pytest.mark.parametrize("search", SETTINGS, ids=str)
def test_texts_come_as_often_as_they_are_likely(search: Sample) -> None:
    """Pearson's chi-square over all texts of two tokens: within five standard deviations, nothing impossible."""
    toy, rules, draws = Toy(5), Rules(END, 2), 4000
    ((*texts,),) = sample(replace(search, num_samples=draws, seed=1), toy, rules, [3])
    seen = Counter((tuple(text.tokens), text.finished) for text in texts)
    expected = {}
    for tokens, finished in every_text(5, rules):
        share, before = 1.0, ()
        for token in (*tokens, END) if finished else tokens:
            logs = toy.opinion((3, 1, *before))
            share *= filtered(search, np.exp(logs) / np.exp(logs).sum(), set(before))[token]
            before = (*before, token)
        expected[tokens, finished] = share * draws
    assert sum(expected.values()) == pytest.approx(draws)
    assert all(expected[one] > 0 for one in seen)
    likely = [one for one, count in expected.items() if count > 5]
    square = sum((seen[one] - expected[one]) ** 2 / expected[one] for one in likely)
    freedom = len(likely) - 1
    assert len(likely) > 2 and square < freedom + 5 * (2 * freedom) ** 0.5


def test_a_row_draws_the_same_in_any_company() -> None:
    toy, numbers = Toy(6, places=3), list(range(9))
    search, rules = (
        Sample(temperature=1.5, repetition_penalty=1.2, num_samples=2, seed=4),
        Rules(END, 12, rows=[7, *range(10, 18)]),
    )
    together = sample(search, toy, rules, numbers, attention=True)
    for row, number in enumerate(numbers):
        (alone,) = sample(search, toy, rules.select([row]), [number], attention=True)
        for one, other in zip(alone, together[row], strict=True):
            assert plain(one) == plain(other) and torch.equal(one.weights, other.weights)


def test_what_is_drawn_depends_on_seed_and_number() -> None:
    toy = Toy(6)

    def texts(seed: int, rows) -> list[list[int]]:
        return [text.tokens for (text,) in sample(Sample(seed=seed), toy, Rules(None, 8, rows=rows), [3] * 5)]

    usual = texts(0, None)
    assert usual == texts(0, range(5)) and len({tuple(one) for one in usual}) == 5
    assert texts(0, [4, 3, 2, 1, 0]) == usual[::-1]
    assert texts(0, [2] * 5) == [usual[2]] * 5
    assert not any(one in usual for one in texts(1, None))
    (several,) = sample(Sample(num_samples=3), toy, Rules(None, 8), [3])
    assert usual[0] in [text.tokens for text in several]
    assert [text.score for text in several] == sorted((text.score for text in several), reverse=True)


def test_a_longer_text_begins_as_the_shorter_one() -> None:
    toy = Toy(6)
    short, long = (sample(Sample(), toy, Rules(None, longest), [1, 2]) for longest in (3, 40))
    assert [text.tokens for (text,) in short] == [text.tokens[:3] for (text,) in long]


def test_the_global_chance_is_left_alone() -> None:
    before = torch.get_rng_state()
    sample(Sample(), Toy(), Rules(END, 5), [1, 2])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("cold", [Sample(temperature=1e-6), Sample(top_k=1), Sample(top_p=1e-9), Sample(min_p=1.0)])
def test_cold_it_is_greedy(cold: Sample) -> None:
    toy, numbers = Toy(6), list(range(6))
    rules = Rules(END, 9, min_length=2, prefix=[[n % 5 + 1] * (n % 3) for n in numbers], banned=[[2], [3, 4]])
    greedy = Greedy()(toy, *begin(toy, numbers), rules)
    for (one,), (other,) in zip(sample(cold, toy, rules, numbers), greedy, strict=True):
        assert plain(one) == plain(other)


def test_rules_hold_whatever_chance_says() -> None:
    toy = Toy(5, places=2)
    rules = Rules(END, 6, min_length=2, prefix=[[4, 4]], banned=[[3], [1, 2]])
    ((*texts,),) = sample(Sample(temperature=3.0, num_samples=300), toy, rules, [5], attention=True)
    assert len({tuple(text.tokens) for text in texts}) > 20
    for text in texts:
        steps = [*text.tokens, END] if text.finished else text.tokens
        assert text.tokens[:2] == [4, 4] and 3 not in text.tokens
        assert (1, 2) not in zip(text.tokens, text.tokens[1:], strict=False)
        assert text.finished == (len(text.tokens) < 6)
        np.testing.assert_allclose(text.log_probs, toy.log_probs(5, steps))
        np.testing.assert_allclose(text.weights, toy.weights(5, steps))


def test_a_penalty_makes_repeating_rare() -> None:
    toy = Toy(8, sharp=0.1)

    def repeats(penalty: float) -> int:
        ((*texts,),) = sample(Sample(repetition_penalty=penalty, num_samples=50), toy, Rules(None, 8), [0])
        return sum(8 - len(set(text.tokens)) for text in texts)

    assert repeats(50.0) == 0 < repeats(1.2) < repeats(1.0) < repeats(0.5)


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0.0}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1},
        {"min_p": -0.1}, {"repetition_penalty": 0.0}, {"seed": -1}, {"num_samples": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_in_words(setting) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(SettingError, match=f"Sample: got {name}={value}, expected"):
        Sample(**setting)


def test_what_it_cannot_promise_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="Required tokens"):
        sample(Sample(), Toy(), Rules(END, 3, required=[[[1]]]), [0])


def test_no_rows_give_no_texts() -> None:
    assert sample(Sample(num_samples=2), Toy(), Rules(END, 3), []) == []
