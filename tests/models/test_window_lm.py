"""WindowLM: the formula typed out, and a window that nothing outside of it gets through."""

import pytest
import torch

from models.rnn_language_models import WIDTH, tokens, window
from regard.errors import SettingError
from regard.models.embedding import WordEmbedding
from regard.models.window_lm import WindowLM


def test_it_is_the_last_words_side_by_side() -> None:
    model, text = window(3), tokens(6, extra=0)
    rows = model.words.embedding.weight
    for place in range(6):
        near = [
            rows[text[at]] * WIDTH**0.5 if at >= 0 else torch.zeros(WIDTH).double()
            for at in range(place - 2, place + 1)
        ]
        hidden = torch.tanh(model.layer.weight @ torch.cat(near) + model.layer.bias)
        logits = rows @ (model.softmax.project.weight @ hidden) + model.softmax.bias
        torch.testing.assert_close(model(text[None])[0].logits[0, place], logits)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_nothing_outside_the_window_is_seen(size) -> None:
    model, inputs = window(size), tokens(1, 9, extra=0)
    before = model(inputs)[0].logits
    for place in range(9):
        other = inputs.clone()
        other[:, place] = (other[:, place] + 1) % 11
        changed = (model(other)[0].logits != before).any(-1)[0]
        assert changed.nonzero().squeeze(-1).tolist() == list(range(place, min(9, place + size)))


def test_words_of_another_text_are_not_seen() -> None:
    model, inputs = window(4), tokens(1, 7)
    apart = model(inputs, torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))[0].logits
    torch.testing.assert_close(apart[:, :3], model(inputs[:, :3])[0].logits)
    torch.testing.assert_close(apart[:, 3:], model(inputs[:, 3:])[0].logits)


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="size=0, expected a window of at least 1 word"):
        WindowLM(WordEmbedding(5, 4), 0, 4)
