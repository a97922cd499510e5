"""Links from a chosen place: what is read is what the model attends to; shifted, by norms, by heads: as typed out."""

from __future__ import annotations

import pytest
import torch

from models.translators import DECODERS, HIDDEN, STATES, WIDTH, large
from regard.adapters import ModelAdapter, adapter
from regard.adapters.tokens import NO_WORD
from regard.errors import SettingError
from regard.inspection.alignment.align import Aligning, both_ways
from regard.inspection.alignment.evaluate import Gold
from regard.inspection.alignment.extract import (
    Crossing,
    Reading,
    across,
    best_reading,
    crossings,
    own_place,
    word_map,
    word_maps,
)
from regard.inspection.alignment.links import links_of, word_map as told_map
from regard.inspection.attribution.norms import norm_based
from regard.inspection.attribution.word_pooling import between_words
from regard.inspection.record.collect import collect
from regard.models.decoders import Bahdanau
from regard.models.embedding import Words
from regard.models.pointer import PointerGenerator
from regard.models.rnn_encoder import Reader
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Size, build_transformer
from regard.text import Tokenizer
from regard.text.tokenizers.kinds import BPE

PAIRS = [
    ("the black cat sleeps .", "le chat noir dort ."),
    ("he hit me .", "il m' a frappé ."),
    ("a cat", "un petit chat"),
    ("the old judge did not see us .", "le vieux juge ne nous a pas vus ."),
]
TOKENIZER = Tokenizer.train(BPE(70), [text for pair in PAIRS for text in pair])
NAMES = ["bahdanau", "bahdanau with coverage", "bilinear", "local-p, fed", "pointer", "transformer"]


def reads(name: str) -> ModelAdapter:
    size = len(TOKENIZER)
    torch.manual_seed(0)
    words = [Words(size, WIDTH, TOKENIZER.special.unknown) for _ in range(2)]
    if name == "transformer":
        return adapter(large(build_transformer(size, Size(3, 8, 2, 16), looks=1)).float(), TOKENIZER)
    if name == "pointer":
        model = PointerGenerator(Reader(words[0], STATES), Bahdanau(WIDTH, HIDDEN, STATES, coverage=True), words[1])
    else:
        model = Seq2Seq(Reader(words[0], STATES), DECODERS[name](), words[1])
    return adapter(large(model).float(), TOKENIZER)


@pytest.mark.parametrize("name", NAMES)
def test_the_own_place_read_as_it_is_gives_what_the_translator_tells(name: str) -> None:
    found = reads(name)
    reading = Aligning().reading(found, PAIRS[0])
    [maps] = word_maps(found, PAIRS, [reading])
    for one, matrix in zip(found.translator.read(PAIRS), maps, strict=True):
        torch.testing.assert_close(matrix, told_map(found.translator, one))
        assert matrix.shape == (len(one.text.split()), len(one.source.split()))
    exact = [one.links for one in Aligning()(found, PAIRS)]
    assert exact == [one.links for one in Aligning(str(reading).partition(",")[0])(found, PAIRS)]


@pytest.mark.parametrize("name", ["pointer", "transformer"])
def test_a_pair_alone_equals_the_pair_in_company(name: str) -> None:
    found = reads(name)
    ways = [Reading(place, by=by, shift=shift) for place in across(found, PAIRS[0]) for by, shift in (("norm", True),)]
    together = word_maps(found, PAIRS, ways)
    for number, pair in enumerate(PAIRS):
        for maps, [alone] in zip(together, word_maps(found, [pair], ways), strict=True):
            torch.testing.assert_close(maps[number], alone)


def test_norms_are_those_of_the_measure() -> None:
    found = reads("transformer")
    for place in across(found, PAIRS[0]):
        _, seen = next(crossings(found, PAIRS[:1], [place]))
        record = collect(found, *PAIRS[0]).place(place)
        sources, targets = seen[place].sources[:-1], seen[place].targets[:-1]
        for head in range(2):
            expected = between_words(norm_based(record, head), sources, targets)
            got = word_map(seen[place], Reading(place, (head,), "norm"))
            torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)


def test_places_are_found_and_the_models_own_one_is_its_choice() -> None:
    places = across(reads("transformer"), PAIRS[0])
    assert places == ["decoder.0.cross", "decoder.1.cross", "decoder.2.cross"]
    assert own_place(reads("transformer"), places) == "decoder.1.cross"
    assert across(reads("pointer"), PAIRS[0]) == ["decoder"]


WEIGHTS = torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[0.5, 0.5, 0.0]] * 3])
SEEN = Crossing(WEIGHTS, torch.tensor([[1.0, 3.0, 10.0], [1.0, 1.0, 1.0]]), [0, 1, NO_WORD], [0, 1, NO_WORD])


def test_shifted_a_word_is_looked_for_one_step_later() -> None:
    plain = word_map(SEEN, Reading("x", (0,)))
    shifted = word_map(SEEN, Reading("x", (0,), shift=True))
    torch.testing.assert_close(plain, torch.tensor([[0.7, 0.2], [0.1, 0.8]]))
    torch.testing.assert_close(shifted, torch.tensor([[0.1, 0.8], [0.3, 0.3]]))


def test_by_norms_a_weight_counts_for_what_it_lets_through() -> None:
    got = word_map(SEEN, Reading("x", (0,), "norm"))
    sums = torch.tensor([[0.7 + 0.6 + 1.0], [0.1 + 2.4 + 1.0]])
    torch.testing.assert_close(got, torch.tensor([[0.7, 0.6], [0.1, 2.4]]) / sums)
    assert torch.equal(word_map(SEEN, Reading("x", (1,), "norm")), word_map(SEEN, Reading("x", (1,))))  # norms alike


def test_heads_are_averaged() -> None:
    single = [word_map(SEEN, Reading("x", (head,))) for head in (0, 1)]
    torch.testing.assert_close(word_map(SEEN, Reading("x")), (single[0] + single[1]) / 2)
    assert Reading.at("decoder.1.cross/0,3", shift=True) == Reading("decoder.1.cross", (0, 3), "raw", True)
    with pytest.raises(SettingError, match="heads below 2"):
        word_map(SEEN, Reading("x", (2,)))
    with pytest.raises(SettingError, match="as in decoder"):
        Reading.at("decoder.1.cross/a")


def test_words_that_stand_around_the_text_do_not_count() -> None:
    framed = Crossing(WEIGHTS, SEEN.norms, [NO_WORD, 0, NO_WORD], [NO_WORD, 0, 0])
    torch.testing.assert_close(word_map(framed, Reading("x", (0,))), torch.tensor([[0.9]]))


def test_the_place_that_gold_links_were_taken_from_is_the_best() -> None:
    found = reads("transformer")
    for wanted in (Reading("decoder.2.cross", (1,)), Reading("decoder.0.cross", None, "norm", True)):
        [maps] = word_maps(found, PAIRS, [wanted])
        gold = [Gold.of(links_of(matrix)) for matrix in maps]
        best, got = best_reading(found, PAIRS, gold, shares=lambda matrix: matrix)
        assert (best, got.aer) == (wanted, 0.0)
        like, _ = best_reading(found, PAIRS, gold, Reading("", shift=True), shares=lambda matrix: matrix)
        assert like.shift and like.by == "raw"


def test_both_directions_become_one() -> None:
    found = reads("bahdanau")
    forth = Aligning()(found, PAIRS)
    back = Aligning()(found, [(target, source) for source, target in PAIRS])
    for one, other, made in zip(forth, back, both_ways(forth, back, "union"), strict=True):
        assert set(made.links) == set(one.links) | {(j, i) for i, j in other.links}
        assert made.told["links"] == made.links and made.told["source"] == one.told["source"]


def test_a_model_that_translates_nothing_is_refused() -> None:
    from regard.models.bert import SIZES, Bert

    bert = adapter(Bert.of(len(TOKENIZER), SIZES["tiny"], positions=16), TOKENIZER)
    with pytest.raises(SettingError, match="a model that translates"):
        Aligning()(bert, PAIRS)
