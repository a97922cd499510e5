"""Laws of going on with a text: prompts apart or together, empty ones, unknown words copied, and no more than fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.attention.positions import Rotary
from regard.decoding import Beam, Greedy, Rules, Sample
from regard.decoding.generate import Continuation, ban_unknown, generate_text
from regard.errors import SettingError
from regard.models.gpt import GPT
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import CharacterLevel, WordLevel

STORY = "the cat sat on the mat .\nthe dog saw the cat .\n"
PROMPTS = ["the cat", "", "a dog", "the", "the mat", "t"]


def characters(positions=None) -> tuple[GPT, Tokenizer]:
    tokenizer = Tokenizer.train(CharacterLevel(), [STORY])
    torch.manual_seed(0)
    model = GPT(len(tokenizer), 16, 1, 2, Rotary(8) if positions is None else positions).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(20)  # so that it has an opinion
    return model, tokenizer


def told(one: Continuation) -> tuple[str, list[int], bool]:
    return one.text, one.tokens, one.finished


@pytest.mark.parametrize(
    "search", [Greedy(), Sample(seed=3, num_samples=2), Beam(3, n_best=2)], ids=["greedy", "sample", "beam"]
)
def test_prompts_together_go_on_as_alone(search) -> None:
    model, tokenizer = characters()
    rules = Rules(tokenizer.special.end, 12)
    together = generate_text(model, tokenizer, PROMPTS, search, rules)
    for row, prompt in enumerate(PROMPTS):
        (alone,) = generate_text(model, tokenizer, [prompt], search, replace(rules, rows=[row]))
        assert [told(one) for one in alone] == [told(one) for one in together[row]]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]], rel=1e-4)


def test_it_is_what_the_model_would_say() -> None:
    model, tokenizer = characters()
    end = tokenizer.special.end
    for prompt, (one,) in zip(PROMPTS, generate_text(model, tokenizer, PROMPTS, Greedy(), Rules(None, 9)), strict=True):
        ids = [*tokenizer.encode(prompt).ids] or [end]
        with torch.no_grad():
            for _ in range(9):
                ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        assert one.tokens == ids[-9:] and one.text == tokenizer.decode(ids[-9:])


def test_without_rules_it_ends_with_the_text_or_with_what_the_model_can_read() -> None:
    model, tokenizer = characters(positions=10)
    ((one,),) = generate_text(model, tokenizer, [""])
    assert one.finished or len(one.tokens) == 10
    with pytest.raises(
        SettingError, match=r"a prompt of 7 tokens and max_length=5, expected at most 10 .* There is room for 4 more"
    ):
        generate_text(model, tokenizer, ["the cat"], rules=Rules(None, 5))
    assert len(generate_text(model, tokenizer, ["the cat"], rules=Rules(None, 4))[0][0].tokens) == 4
    with pytest.raises(SettingError, match="Shorten the prompt"):
        generate_text(model, tokenizer, ["the cat sat on"], rules=Rules(None, 1))


def test_many_prompts_of_one_length_and_none() -> None:
    model, tokenizer = characters()
    many = generate_text(model, tokenizer, ["the"] * 70, Sample(), Rules(None, 5))
    assert len(many) == 70 and len({one.text for (one,) in many}) > 10
    assert generate_text(model, tokenizer, []) == []


class Echo(nn.Module):
    """Says the words of its prompt again, in order, then ends; it copies, so it can say any word."""

    copies = True

    def __init__(self, size: int, end: int) -> None:
        super().__init__()
        self.size, self.end = size, end

    def start(self, inputs, lengths):
        assert int(lengths.min()) == inputs.size(1)
        return inputs, 0

    def step(self, state, tokens):
        seen, at = state
        seen = torch.cat((seen, tokens[:, None]), 1) if at == 0 else seen
        width = max(self.size, int(seen.max()) + 1)
        log_probs = torch.full((len(tokens), width), -torch.inf)
        said = seen[:, at] if at < seen.size(1) else torch.full_like(tokens, self.end)
        weights = nn.functional.one_hot(torch.full_like(tokens, min(at, seen.size(1) - 1)), seen.size(1)).float()
        return log_probs.scatter(1, said[:, None], 0.0), weights, (seen, at + 1)

    def reorder(self, state, rows):
        return state[0][rows], state[1]


@pytest.mark.parametrize("search", [Greedy(), Beam(2)])
def test_unknown_words_of_a_prompt_are_spelled_back(search) -> None:
    tokenizer = Tokenizer.train(WordLevel(20), [STORY])
    prompts = ["the Yellen saw Strickland", "Strickland sat on Yellen", "dog"]
    model = Echo(len(tokenizer), tokenizer.special.need("end"))
    found = generate_text(model, tokenizer, prompts, search, Rules(tokenizer.special.end, 9), attention=True)
    for prompt, (one,) in zip(prompts, found, strict=True):
        assert one.text == f" {prompt}" and one.finished
        assert one.weights is not None and one.weights.argmax(-1).tolist()[:-1] == list(range(len(prompt.split())))
    unknown = [{token for token in one.tokens if token >= len(tokenizer)} for (one,) in found]
    assert unknown[0] == unknown[1] and len(unknown[0]) == 2 and not unknown[2]


def test_rules_belong_to_prompts_however_they_are_grouped() -> None:
    model, tokenizer = characters()
    begun = [tokenizer.encode(sign).ids for sign in "acdehm"]
    found = generate_text(model, tokenizer, PROMPTS, Greedy(), Rules(None, 4, prefix=begun))
    assert [one.text[0] for (one,) in found] == list("acdehm")
    with pytest.raises(SettingError, match="prefix for 6 rows, expected one for each of 1"):
        generate_text(model, tokenizer, ["the"], Greedy(), Rules(None, 4, prefix=begun))


def test_the_unknown_token_is_no_word_and_is_never_said() -> None:
    model, tokenizer = characters()
    unknown = tokenizer.special.need("unknown")
    draws = Sample(temperature=5.0, seed=1, num_samples=20)  # hot enough for everything to come up
    free = Rules(None, 30)
    assert any(unknown in one.tokens for one in generate_text(model, tokenizer, ["the"], draws, free)[0])
    ruled = generate_text(model, tokenizer, ["the"], draws, replace(free, banned=ban_unknown(tokenizer)))
    assert not any(unknown in one.tokens for one in ruled[0])
    assert not any(unknown in one.tokens for one in generate_text(model, tokenizer, ["the"], draws)[0])
