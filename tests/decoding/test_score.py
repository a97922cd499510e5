"""Laws of going through a given text: every ln p and every look is the one of that place, and padding has none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoding.toys import END, Toy, begin
from regard.decoding import Greedy, Rules, teacher_force
from regard.errors import ShapeError


@pytest.mark.parametrize("places", [3, None])
def test_each_token_has_the_probability_and_the_look_of_its_place(places) -> None:
    toy, numbers = Toy(5, places=places), [4, 2, 8]
    texts = [[1, 2, 3, END], [4], []]
    tokens = torch.tensor([[1, 2, 3, END], [4, -100, -100, -100], [-100] * 4])
    log_probs, weights = teacher_force(toy, *begin(toy, numbers), tokens, torch.tensor([4, 1, 0]))
    assert log_probs.shape == (3, 4) and (weights is None) == (places is None)
    for row, (number, text) in enumerate(zip(numbers, texts, strict=True)):
        np.testing.assert_allclose(log_probs[row, : len(text)], toy.log_probs(number, text))
        assert not log_probs[row, len(text) :].any()
        if weights is not None and text:
            np.testing.assert_allclose(weights[row, : len(text)], toy.weights(number, text))
            assert not weights[row, len(text) :].any()


def test_it_says_of_a_text_what_the_search_said() -> None:
    toy, numbers = Toy(6, places=3), [1, 2, 3, 4]
    found = [text for (text,) in Greedy()(toy, *begin(toy, numbers), Rules(END, 9), attention=True)]
    steps = [[*text.tokens, END] if text.finished else text.tokens for text in found]
    lengths = torch.tensor([len(one) for one in steps])
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in steps], batch_first=True)
    log_probs, weights = teacher_force(toy, *begin(toy, numbers), tokens, lengths)
    for row, text in enumerate(found):
        assert log_probs[row, : lengths[row]].tolist() == text.log_probs
        assert torch.equal(weights[row, : lengths[row]], text.weights)


def test_no_tokens_and_no_rows() -> None:
    toy = Toy()
    assert teacher_force(toy, *begin(toy, [1, 2]), torch.zeros(2, 0).long(), torch.zeros(2).long())[0].shape == (2, 0)


def test_tokens_that_the_model_cannot_say_are_refused_in_words() -> None:
    toy = Toy(4)
    with pytest.raises(ShapeError, match="tokens from 2 to 4, expected 0 to 3"):
        teacher_force(toy, *begin(toy, [1]), torch.tensor([[2, 4]]), torch.tensor([2]))
