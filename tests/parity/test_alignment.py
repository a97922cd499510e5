"""Links from translators of transformers: their words are those between spaces, whatever their tokenizer cuts."""

from __future__ import annotations

import pytest
import torch

from parity.test_attention_interface import made
from parity.test_record import tokenizer
from regard import hub
from regard.adapters import adapter
from regard.adapters.token_row import NO_WORD
from regard.inspection.alignment.align import AlignmentExtractor
from regard.inspection.alignment.extract import (
    AlignmentSource,
    collect_cross_attention,
    cross_attention_places,
    pool_word_map,
    word_maps,
)

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _enabled() -> None:
    hub.enable()


PAIR = ("the cat sleeps. .", "a dog sleepsly the .")


@pytest.mark.parametrize("family", ["bart", "marian", "t5"])
@torch.no_grad()
def test_weights_are_those_of_eager(family: str) -> None:
    found = adapter(made(family, "regard"), tokenizer())
    places = cross_attention_places(found, PAIR)
    assert len(places) == 2
    [(_, seen)] = collect_cross_attention(found, [PAIR], places)
    given = tokenizer()(PAIR[0], return_tensors="pt")["input_ids"]
    said = tokenizer()(text_target=PAIR[1])["input_ids"]
    eager = made(family, "eager")
    start = eager.config.decoder_start_token_id
    target = torch.tensor([[start, *said[:-1]]])
    expected = eager(input_ids=given, decoder_input_ids=target, output_attentions=True).cross_attentions
    for place, weights in zip(places, expected, strict=True):
        torch.testing.assert_close(seen[place].weights, weights[0], atol=1e-3, rtol=0)
        assert seen[place].sources == [NO_WORD, 0, 1, 2, 2, 2, 3, NO_WORD]  # sleep ##s . are one word
        assert seen[place].targets == [NO_WORD, 0, 1, 2, 2, 2, 3, 4, NO_WORD]
        matrix = pool_word_map(seen[place], AlignmentSource(place, (1,)))
        torch.testing.assert_close(matrix[0, 2], weights[0, 1, 1, 3:6].sum(), atol=2e-3, rtol=0)
        shifted = pool_word_map(seen[place], AlignmentSource(place, (1,), shift=True))
        torch.testing.assert_close(shifted[0, 2], weights[0, 1, 2, 3:6].sum(), atol=2e-3, rtol=0)


def test_all_readings_are_maps_between_words() -> None:
    found = adapter(made("bart", "sdpa"), tokenizer())
    places = cross_attention_places(found, PAIR)
    readings = [
        AlignmentSource(place, weighting=by, shift=shift)
        for place in places
        for by in ("raw", "norm")
        for shift in (0, 1)
    ]
    for [matrix] in word_maps(found, [PAIR], readings):
        assert matrix.shape == (5, 4) and matrix.isfinite().all() and (matrix >= 0).all()
    [aligned] = AlignmentExtractor()(found, [PAIR])
    assert {j for _, j in aligned.links} == set(range(5))
    assert aligned.details["words"]["source"] == PAIR[0].split()


def test_a_tokenizer_that_tells_no_places_cuts_word_by_word() -> None:
    class Slow:
        """The same one, asked for offsets in vain."""

        is_fast = False

        def __init__(self) -> None:
            self.own = tokenizer()

        def __call__(self, *texts: object, **how: object) -> object:
            assert "return_offsets_mapping" not in how
            return self.own(*texts, **how)

        def __getattr__(self, name: str) -> object:
            return getattr(self.own, name)

    quick, slow = (adapter(made("marian", "regard"), one) for one in (tokenizer(), Slow()))
    place = cross_attention_places(quick, PAIR)[0]
    [(_, expected)], [(_, got)] = (collect_cross_attention(one, [PAIR], [place]) for one in (quick, slow))
    assert (got[place].sources, got[place].targets) == (expected[place].sources, expected[place].targets)
