"""Laws of rollout: shares sum to one, layers compose, two texts share one token, a batch equals its rows alone."""

import pytest
import torch
from tests.inspection.attribution.records import bert, gpt, heard, ids, place, record, side, translated, translator

from regard.attention import capture
from regard.attention.masks import Causal, Padding
from regard.errors import RecordError, SettingError, ShapeError
from regard.inspection.attribution.rollout import RolloutLayer, rollout, rollout_layers
from regard.inspection.record.record import Record

close = torch.testing.assert_close


def alone(*weights: torch.Tensor, residual: float = 0.5) -> torch.Tensor:
    """Rollout of one text that looks at itself."""
    return rollout([RolloutLayer(one) for one in weights], residual)[0][0]


def maps(*places) -> list[torch.Tensor]:
    return [torch.stack([one.tile(head) for head in range(one.heads)]).double().mean(0) for one in places]


def test_two_layers_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    second = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    # A1 = [[1, 0], [.25, .75]], A2 = [[.5, .5], [.25, .75]]
    close(alone(first, second), torch.tensor([[0.625, 0.375], [0.4375, 0.5625]]))
    close(alone(first, second, residual=0.0), torch.tensor([[0.5, 0.5], [0.75, 0.25]]))


def test_rows_sum_to_one_and_queries_without_keys_stay_themselves() -> None:
    places = [place(T=7, mask=Padding([5], queries=[4]), seed=seed) for seed in range(3)]
    got = alone(*maps(*places))
    close(rollout(rollout_layers(record(*places)))[0][0], got)
    close(got.sum(-1), torch.ones(7, dtype=torch.float64))
    close(got[4:], torch.eye(7, dtype=torch.float64)[4:])


def test_layers_compose() -> None:
    """The last layers after the first ones are all of them, as the page follows a token back."""
    places = [place(T=40, mask=Causal(), seed=seed) for seed in range(3)]
    layers = rollout_layers(record(*places))
    whole = rollout(layers)[0][0]
    for count in (1, 2):
        close(rollout(layers[-count:])[0][0] @ rollout(layers[:-count])[0][0], whole)


def test_an_encoder_is_traced_back_to_its_input() -> None:
    model = gpt(3)
    places = heard(model, lambda: model(ids(1, 9)), {"decoder": (0, 0)})
    found = rollout(rollout_layers(Record((side("text", 9),), places)))[0][0]
    close(found, alone(*maps(*places)))
    assert found[5, 6:].abs().max() == 0


def test_only_the_named_places_are_used() -> None:
    model = gpt(3)
    seen = Record((side("text", 9),), heard(model, lambda: model(ids(1, 9)), {"decoder": (0, 0)}))
    some = rollout(rollout_layers(seen, ["decoder.0.self", "decoder.1.self"]))[0][0]
    close(some, alone(*maps(*seen.places[:2])))
    with pytest.raises(RecordError, match=r"decoder\.7"):
        rollout_layers(seen, ["decoder.7"])


def test_a_translator_shares_a_token_between_its_two_texts() -> None:
    seen = translated(ids(1, 7), ids(1, 5))
    by_name = dict(zip((one.name for one in seen.places), maps(*seen.places), strict=True))
    x, memory = torch.eye(5, dtype=torch.float64), torch.eye(7, dtype=torch.float64)
    tokens = torch.cat((x, torch.zeros(5, 7).double()), 1)  # what each vector is made of: target, then source
    read = torch.cat((torch.zeros(7, 5).double(), memory), 1)
    for layer in range(2):
        read = (read + by_name[f"encoder.blocks.{layer}.self"] @ read) / 2
    for layer in range(2):
        tokens = (tokens + by_name[f"decoder.{layer}.self"] @ tokens) / 2
        tokens = (tokens + by_name[f"decoder.{layer}.cross"] @ read) / 2
    layers = rollout_layers(seen)
    shares = rollout(layers)[1]
    assert set(shares) == {0, 1}
    close(torch.cat((shares[1], shares[0]), 1), tokens, atol=1e-3, rtol=0)  # rows of a record sum to about one
    for count in range(1, len(layers) + 1):
        total = sum(part.sum(-1) for part in rollout(layers[-count:])[1].values())
        close(total, torch.ones(5, dtype=torch.float64))


def random_layers(count: int = 3, seed: int = 0) -> list[torch.Tensor]:
    """Weights (2, 5, 5) of a text of five tokens and of one of three, whose padding nobody looks at."""
    rng = torch.Generator().manual_seed(seed)
    real = torch.arange(5) < torch.tensor([5, 3]).unsqueeze(1)
    scores = 3 * torch.randn(count, 2, 5, 5, generator=rng)
    return list(scores.masked_fill(~real.unsqueeze(1), -torch.inf).softmax(-1))


def test_each_text_of_a_batch_as_it_is_alone() -> None:
    weights = random_layers()
    found = alone(*weights)
    for at, length in enumerate((5, 3)):
        close(found[at, :length, :length], alone(*(one[at, :length, :length] for one in weights)))
        assert not found[at, :length, length:].any()


def test_a_learned_query_sees_the_shares_of_the_vectors() -> None:
    *lower, last = random_layers()
    question = last[:, :1]
    found = rollout([*(RolloutLayer(one) for one in lower), RolloutLayer(question, 1, 0)])[1]
    close(found[0], question @ alone(*lower) / 2)  # the other half is what the question was before
    close(found[1], torch.full((2, 1, 1), 0.5))


def test_rollout_of_a_bert_record() -> None:
    model, text = bert(3), ids(1, 6)
    with torch.no_grad(), capture(model) as found:
        model(text, torch.tensor([6]))
    weights = [found[name].weights.mean(1) for name in found]
    close(alone(*weights)[0], alone(*(one[0] for one in weights)))


def test_rollout_of_a_decoder_record() -> None:
    model, source, target = translator(), ids(1, 5), ids(1, 4, seed=2)
    with torch.no_grad(), capture(model) as found:
        model(source, torch.tensor([5]), target)
    layers = []
    for name in found:
        reads = name.startswith("encoder")
        layers.append(
            RolloutLayer(found[name].weights.mean(1), int(not reads), int(not reads and not name.endswith("cross")))
        )
    recorded = rollout(rollout_layers(translated(source, target, model)))[1]
    for origin, shares in rollout(layers)[1].items():
        close(shares[0], recorded[origin], atol=1e-3, rtol=0)


def test_what_cannot_be_rolled_out_is_refused() -> None:
    with pytest.raises(SettingError, match="There are no layers"):
        rollout([])
    with pytest.raises(SettingError, match="share from 0 to 1"):
        alone(torch.eye(2), residual=1.5)
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        alone(torch.ones(2, 3))
    with pytest.raises(ShapeError, match="as before it"):
        alone(torch.eye(2), torch.eye(3))
