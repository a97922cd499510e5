"""Value zeroing equals the same computed one token at a time, with zeroed value matrices."""

import pytest
import torch
from tests.inspection.attribution.records import bert, gpt, ids, translator
from torch import nn

from regard.attention.layers import MultiHead
from regard.attention.pooling import AttentionPooling
from regard.errors import PlaceError, SettingError
from regard.inspection.attribution.value_zeroing import value_zeroing

close = torch.testing.assert_close
lengths = torch.tensor([6, 4])


def of_bert():
    model = bert()
    return model, lambda: model(ids(2, 6), lengths)


def of_gpt():
    model = gpt()
    return model, lambda: model(ids(2, 6))


def of_translator():
    model = translator()
    return model, lambda: model(ids(2, 6), lengths, ids(2, 5, seed=2))


by_model = pytest.mark.parametrize("make", [of_bert, of_gpt, of_translator])


class Zeroed(nn.Module):
    """Projections that forget the value of one token."""

    def __init__(self, project: nn.Module, key: int) -> None:
        super().__init__()
        self.project, self.key = project, key
        self.heads, self.width, self.bias = project.heads, project.width, project.bias

    def queries(self, x):
        return self.project.queries(x)

    def keys_values(self, memory):
        k, v = self.project.keys_values(memory)
        return k, self._without(v)

    def all(self, x):
        q, k, v = self.project.all(x)
        return q, k, self._without(v)

    def _without(self, v):
        v = v.clone()
        v[:, :, self.key] = 0
        return v


@torch.no_grad()
def by_hand(model: nn.Module, run, place: str) -> torch.Tensor:
    """(B, T, S): the model runs again for every key, and the block of the place is looked at."""
    heads = model.get_submodule(place)
    assert isinstance(heads, MultiHead)
    block, project = model.get_submodule(place.rpartition(".")[0]), heads.project
    said = []
    handle = block.register_forward_hook(lambda module, inputs, output: said.append(output))
    run()
    across = place.endswith("cross") or place.startswith("encoder")
    for key in range(6 if across or said[0].size(1) == 6 else 5):
        heads.project = Zeroed(project, key)
        run()
    heads.project = project
    handle.remove()
    before, *after = said
    distances = torch.stack([1 - torch.cosine_similarity(before, one, -1) for one in after], -1)
    return distances / distances.sum(-1, keepdim=True)


@by_model
@pytest.mark.parametrize("together", [1, 4, 100])
def test_it_equals_running_the_block_with_each_value_zeroed(make, together: int) -> None:
    model, run = make()
    found = value_zeroing(model, run, keys_at_once=together)
    assert len(found) == {"Bert": 2, "GPT": 2, "Transformer": 6}[type(model).__name__]
    for place, got in found.items():
        close(got, by_hand(model, run, place), atol=1e-6, rtol=1e-5)
        close(got.sum(-1), torch.ones_like(got[..., 0]))


def test_masked_keys_have_no_share() -> None:
    model, run = of_gpt()
    for got in value_zeroing(model, run).values():
        assert (got.triu(1) == 0).all() and (got.tril() > 0).any(-1).all()
    model, run = of_bert()
    for got in value_zeroing(model, run).values():
        assert (got[1, :, 4:] == 0).all() and (got[0] > 0).all()


def test_no_hook_is_left_on_the_model() -> None:
    model, run = of_gpt()
    before = run()
    value_zeroing(model, run, "decoder.1.self")
    assert torch.equal(run(), before)
    assert not any(module._forward_hooks for module in model.modules())


def test_unusable_models_and_places_are_refused() -> None:
    model, run = of_gpt()
    with pytest.raises(PlaceError, match="No place matches"):
        value_zeroing(model, run, "*.cross")
    with pytest.raises(SettingError, match="cache"):
        value_zeroing(model, lambda: model(ids(1, 4), None, model.caches()))
    with pytest.raises(PlaceError, match="called twice"):
        value_zeroing(model, lambda: (run(), run()))
    with pytest.raises(PlaceError, match="No call was captured"):
        value_zeroing(model, lambda: None)
    with pytest.raises(SettingError, match=r"eval\(\)"):
        value_zeroing(model.train(), run)
    with pytest.raises(PlaceError, match="EncoderBlock"):
        value_zeroing(AttentionPooling(4).eval(), run)
