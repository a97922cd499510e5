"""Laws of rollout: rows sum to one, a row is the row of the whole, two texts share one token, and no map is held."""

import pytest
import torch
from tests.inspection.measures.records import gpt, heard, ids, place, record, side, translated
from tests.inspection.measures.watching import largest

from regard.attention.masks import Causal, Padding
from regard.errors import RecordError, SettingError, ShapeError
from regard.inspection.measures.rollout import rollout, rollout_row
from regard.inspection.measures.walking import ROWS
from regard.inspection.record.record import Record

close = torch.testing.assert_close


def maps(*places) -> list[torch.Tensor]:
    return [torch.stack([one.tile(head) for head in range(one.heads)]).double() for one in places]


def test_two_layers_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    second = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])  # two heads; mean [[0, 1], [.5, .5]]
    # A1 = [[1, 0], [.25, .75]], A2 = [[.5, .5], [.25, .75]]
    close(rollout([first, second]), torch.tensor([[0.625, 0.375], [0.4375, 0.5625]]))
    close(rollout([first, second], residual=0.0), torch.tensor([[0.5, 0.5], [0.75, 0.25]]))


def test_rows_sum_to_one_and_who_looks_nowhere_stays_itself() -> None:
    places = [place(T=7, mask=Padding([5], queries=[4]), seed=seed) for seed in range(3)]
    layers = maps(*places)
    got = rollout(layers)
    for token in range(7):
        close(rollout_row(record(*places), token)[-1].masses[0], got[token])
    close(got.sum(-1), torch.ones(7, dtype=torch.float64))
    close(got[4:], torch.eye(7, dtype=torch.float64)[4:])


def test_one_row_is_that_row_of_the_whole_at_every_layer() -> None:
    places = [place(T=ROWS + 50, mask=Causal(), seed=seed) for seed in range(3)]
    layers = maps(*places)
    for token in (0, 77, ROWS + 49):
        stages = rollout_row(record(*places), token)
        assert [stage.place for stage in stages] == ["0.self"] * 3
        for count, stage in enumerate(stages, 1):
            close(stage.masses[0], rollout(layers[-count:])[token])


def test_a_model_that_reads_is_followed_back_to_its_input() -> None:
    model = gpt(3)
    places = heard(model, lambda: model(ids(1, 9)), {"decoder": (0, 0)})
    stages = rollout_row(Record((side("text", 9),), places), 5)
    assert [stage.place for stage in stages] == ["decoder.2.self", "decoder.1.self", "decoder.0.self"]
    close(stages[-1].masses[0], rollout(maps(*places))[5])
    assert stages[-1].masses[0][6:].abs().max() == 0


def test_only_the_named_places_are_passed() -> None:
    model = gpt(3)
    seen = Record((side("text", 9),), heard(model, lambda: model(ids(1, 9)), {"decoder": (0, 0)}))
    some = rollout_row(seen, 5, ["decoder.0.self", "decoder.1.self"])
    close(some[-1].masses[0], rollout(maps(*seen.places[:2]))[5])
    with pytest.raises(RecordError, match=r"decoder\.7"):
        rollout_row(seen, 5, ["decoder.7"])


def test_a_translator_shares_a_token_between_its_two_texts() -> None:
    seen = translated(ids(1, 7), ids(1, 5))
    by_name = {one.name: matrix.mean(0) for one, matrix in zip(seen.places, maps(*seen.places), strict=True)}
    x, memory = torch.eye(5, dtype=torch.float64), torch.eye(7, dtype=torch.float64)
    tokens = torch.cat((x, torch.zeros(5, 7).double()), 1)  # what each vector is made of: target, then source
    read = torch.cat((torch.zeros(7, 5).double(), memory), 1)
    for layer in range(2):
        read = (read + by_name[f"encoder.blocks.{layer}.self"] @ read) / 2
    for layer in range(2):  # forward, as the model runs; the rows come from the other end
        tokens = (tokens + by_name[f"decoder.{layer}.self"] @ tokens) / 2
        tokens = (tokens + by_name[f"decoder.{layer}.cross"] @ read) / 2
    for token in range(5):
        masses = rollout_row(seen, token)[-1].masses
        assert set(masses) == {0, 1}
        close(torch.cat((masses[1], masses[0])), tokens[token], atol=1e-3, rtol=0)  # rows of a record sum to about one
        for stage in rollout_row(seen, token):
            assert float(sum(mass.sum() for mass in stage.masses.values())) == pytest.approx(1.0)


def test_no_map_is_ever_held() -> None:
    T = 6 * ROWS
    seen = record(*(place(T=T, mask=Causal(), seed=seed) for seed in range(2)))
    with largest() as found:
        rollout_row(seen, T - 1)
    assert T <= found.numbers <= ROWS * T
    with largest() as whole:
        seen.places[0].tile(0)
    assert whole.numbers >= T * T  # so the watch does see one


def test_what_cannot_be_rolled_out_is_refused() -> None:
    with pytest.raises(SettingError, match="at least one"):
        rollout([])
    with pytest.raises(SettingError, match="share from 0 to 1"):
        rollout([torch.eye(2)], residual=1.5)
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        rollout([torch.ones(2, 3)])
    with pytest.raises(ShapeError, match="as before it"):
        rollout([torch.eye(2), torch.eye(3)])
    with pytest.raises(RecordError, match="token 6"):
        rollout_row(record(place()), 6)
