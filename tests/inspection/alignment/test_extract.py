"""Word maps from chosen places: shifted, by norms, by heads, against the same by hand."""

from __future__ import annotations

import pytest
import torch

from models.translators import DECODERS, HIDDEN, STATES, WIDTH, large
from regard.adapters import ModelAdapter, adapter
from regard.adapters.token_row import NO_WORD
from regard.errors import SettingError
from regard.inspection.alignment.align import AlignmentExtractor, symmetrize_aligned
from regard.inspection.alignment.evaluate import Gold
from regard.inspection.alignment.extract import (
    AlignmentSource,
    CrossAttention,
    best_source,
    collect_cross_attention,
    cross_attention_places,
    default_place,
    pool_word_map,
    word_maps,
)
from regard.inspection.alignment.links import extract_links, word_map as translated_map
from regard.inspection.attribution.norms import norm_based_attention
from regard.inspection.attribution.word_pooling import pool_to_words
from regard.inspection.record.collect import collect
from regard.models.decoders import Bahdanau
from regard.models.embedding import WordEmbedding
from regard.models.pointer import PointerGenerator
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import TransformerSize, build_transformer
from regard.text import Tokenizer
from regard.text.tokenizers.trainers import BPE

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
    words = [WordEmbedding(size, WIDTH, TOKENIZER.special.unknown) for _ in range(2)]
    if name == "transformer":
        return adapter(
            large(build_transformer(size, TransformerSize(3, 8, 2, 16), alignment_layer=1)).float(), TOKENIZER
        )
    if name == "pointer":
        model = PointerGenerator(
            BiRNNEncoder(words[0], STATES), Bahdanau(WIDTH, HIDDEN, STATES, coverage=True), words[1]
        )
    else:
        model = Seq2Seq(BiRNNEncoder(words[0], STATES), DECODERS[name](), words[1])
    return adapter(large(model).float(), TOKENIZER)


@pytest.mark.parametrize("name", NAMES)
def test_the_default_place_gives_the_links_of_the_translator(name: str) -> None:
    found = reads(name)
    reading = AlignmentExtractor().source_for(found, PAIRS[0])
    [maps] = word_maps(found, PAIRS, [reading])
    for one, matrix in zip(found.translator.score(PAIRS), maps, strict=True):
        torch.testing.assert_close(matrix, translated_map(found.translator, one))
        assert matrix.shape == (len(one.text.split()), len(one.source.split()))
    exact = [one.links for one in AlignmentExtractor()(found, PAIRS)]
    assert exact == [one.links for one in AlignmentExtractor(str(reading).partition(",")[0])(found, PAIRS)]


@pytest.mark.parametrize("name", ["pointer", "transformer"])
def test_a_batch_equals_its_pairs_alone(name: str) -> None:
    found = reads(name)
    ways = [
        AlignmentSource(place, weighting=by, shift=shift)
        for place in cross_attention_places(found, PAIRS[0])
        for by, shift in (("norm", True),)
    ]
    together = word_maps(found, PAIRS, ways)
    for number, pair in enumerate(PAIRS):
        for maps, [alone] in zip(together, word_maps(found, [pair], ways), strict=True):
            torch.testing.assert_close(maps[number], alone)


def test_norms_equal_norm_based_attention() -> None:
    found = reads("transformer")
    for place in cross_attention_places(found, PAIRS[0]):
        _, seen = next(collect_cross_attention(found, PAIRS[:1], [place]))
        record = collect(found, *PAIRS[0]).place(place)
        sources, targets = seen[place].sources[:-1], seen[place].targets[:-1]
        for head in range(2):
            expected = pool_to_words(norm_based_attention(record, head), sources, targets)
            got = pool_word_map(seen[place], AlignmentSource(place, (head,), "norm"))
            torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)


def test_places_of_cross_attention_and_the_default_one() -> None:
    places = cross_attention_places(reads("transformer"), PAIRS[0])
    assert places == ["decoder.0.cross", "decoder.1.cross", "decoder.2.cross"]
    assert default_place(reads("transformer"), places) == "decoder.1.cross"
    assert cross_attention_places(reads("pointer"), PAIRS[0]) == ["decoder"]


WEIGHTS = torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[0.5, 0.5, 0.0]] * 3])
SEEN = CrossAttention(WEIGHTS, torch.tensor([[1.0, 3.0, 10.0], [1.0, 1.0, 1.0]]), [0, 1, NO_WORD], [0, 1, NO_WORD])


def test_shift_takes_the_next_step() -> None:
    plain = pool_word_map(SEEN, AlignmentSource("x", (0,)))
    shifted = pool_word_map(SEEN, AlignmentSource("x", (0,), shift=True))
    torch.testing.assert_close(plain, torch.tensor([[0.7, 0.2], [0.1, 0.8]]))
    torch.testing.assert_close(shifted, torch.tensor([[0.1, 0.8], [0.3, 0.3]]))


def test_norm_weighting_by_hand() -> None:
    got = pool_word_map(SEEN, AlignmentSource("x", (0,), "norm"))
    sums = torch.tensor([[0.7 + 0.6 + 1.0], [0.1 + 2.4 + 1.0]])
    torch.testing.assert_close(got, torch.tensor([[0.7, 0.6], [0.1, 2.4]]) / sums)
    assert torch.equal(
        pool_word_map(SEEN, AlignmentSource("x", (1,), "norm")), pool_word_map(SEEN, AlignmentSource("x", (1,)))
    )  # norms alike


def test_heads_are_averaged() -> None:
    single = [pool_word_map(SEEN, AlignmentSource("x", (head,))) for head in (0, 1)]
    torch.testing.assert_close(pool_word_map(SEEN, AlignmentSource("x")), (single[0] + single[1]) / 2)
    assert AlignmentSource.parse("decoder.1.cross/0,3", shift=True) == AlignmentSource(
        "decoder.1.cross", (0, 3), "raw", True
    )
    with pytest.raises(SettingError, match="head 2, expected heads from 0 to 1"):
        pool_word_map(SEEN, AlignmentSource("x", (2,)))
    with pytest.raises(SettingError, match="as in decoder"):
        AlignmentSource.parse("decoder.1.cross/a")


def test_special_tokens_do_not_count() -> None:
    framed = CrossAttention(WEIGHTS, SEEN.norms, [NO_WORD, 0, NO_WORD], [NO_WORD, 0, 0])
    torch.testing.assert_close(pool_word_map(framed, AlignmentSource("x", (0,))), torch.tensor([[0.9]]))


def test_the_source_of_the_gold_links_is_the_best() -> None:
    found = reads("transformer")
    for wanted in (AlignmentSource("decoder.2.cross", (1,)), AlignmentSource("decoder.0.cross", None, "norm", True)):
        [maps] = word_maps(found, PAIRS, [wanted])
        gold = [Gold.of(extract_links(matrix)) for matrix in maps]
        best, got = best_source(found, PAIRS, gold, normalise=lambda matrix: matrix)
        assert (best, got.aer) == (wanted, 0.0)
        like, _ = best_source(found, PAIRS, gold, AlignmentSource("", shift=True), normalise=lambda matrix: matrix)
        assert like.shift and like.weighting == "raw"


def test_both_directions_are_symmetrised() -> None:
    found = reads("bahdanau")
    forth = AlignmentExtractor()(found, PAIRS)
    back = AlignmentExtractor()(found, [(target, source) for source, target in PAIRS])
    for one, other, made in zip(forth, back, symmetrize_aligned(forth, back, "union"), strict=True):
        assert set(made.links) == set(one.links) | {(j, i) for i, j in other.links}
        assert made.details["links"] == made.links and made.details["source"] == one.details["source"]


def test_a_model_that_does_not_translate_is_refused() -> None:
    from regard.models.bert import SIZES, Bert

    bert = adapter(Bert.of(len(TOKENIZER), SIZES["tiny"], max_positions=16), TOKENIZER)
    with pytest.raises(SettingError, match="Bert is not a translation model"):
        AlignmentExtractor()(bert, PAIRS)
