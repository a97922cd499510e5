"""The next word of a translation: at its own step, in any batch, copied words in their own columns."""

from __future__ import annotations

from random import Random

import pytest
import torch

from faithfulness.toys import PAIRS, SIZE, TOKENIZER, cases, rows, translating
from regard.adapters.translator import MAX_OOV
from regard.errors import SettingError
from regard.text.examples import Labelled, Translation
from regard.text.tokenizers.oov import oov_id

KINDS = pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
START, END = (TOKENIZER.special.need(role) for role in ("start", "end"))


@KINDS
@torch.no_grad()
def test_a_padded_batch_equals_its_rows_alone(kind: str) -> None:
    adapter = translating(kind)
    given = rows(adapter, *PAIRS)
    together = adapter.log_probs(given)
    assert together.size(1) == SIZE + (MAX_OOV if kind == "pointer" else 0)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(len(given)), atol=1e-4, rtol=0)
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], adapter.log_probs([row])[0], atol=1e-5, rtol=1e-4)


@KINDS
def test_cases_are_words_of_the_translation(kind: str) -> None:
    adapter = translating(kind)
    target = TOKENIZER.encode("he did not").ids
    steps = set()
    for seed in range(12):
        found = adapter.make_cases(("the black cat", "he did not"), 3, Random(seed))
        assert len(found) == 2
        for case in found:
            step = len(case.row.decoder_ids) - 1
            assert list(case.row.decoder_ids) == [START, *target[:step]] and case.expected == target[step]
            assert list(case.row.ids) == [*TOKENIZER.encode("the black cat").ids, END]
            assert case.row.removable == (True, True, True, False) and case.number == 3
            steps.add(step)
    assert steps == {0, 1, 2}


@KINDS
@torch.no_grad()
def test_removing_a_word_equals_a_source_without_it(kind: str) -> None:
    adapter = translating(kind)
    [row, *_] = rows(adapter, ("the black cat saw it", "he did"))
    [shorter, *_] = rows(adapter, ("the cat saw it", "he did"))
    assert row.without([1]) == shorter


def test_the_axes_of_each_place() -> None:
    adapter = translating("transformer")
    given = rows(adapter, *PAIRS)
    steps = [len(row.decoder_ids) - 1 for row in given]
    told = {
        place: (adapter.has_text_keys(place), adapter.has_text_queries(place), adapter.readout_position(place, given))
        for place in ("encoder.blocks.0.self", "decoder.0.self", "decoder.1.cross")
    }
    assert told == {
        "encoder.blocks.0.self": (True, True, None),
        "decoder.0.self": (False, False, steps),
        "decoder.1.cross": (True, False, steps),
    }
    assert (translating().has_text_keys("decoder"), translating().has_text_queries("decoder")) == (True, False)


def test_links_are_the_evidence() -> None:
    example = Translation("the black cat", "he did not", ((0, 0), (1, 2), (2, 1), (2, 2)))
    known = {0: {0}, 1: {2}, 2: {1, 2}}
    for seed in range(6):
        for case in translating().make_cases(example, 0, Random(seed)):
            assert case.evidence == known[len(case.row.decoder_ids) - 1]
    unlinked = Translation("the black cat", "he did", ((0, 0),))
    found = {len(case.row.decoder_ids): case.evidence for case in cases(translating(), unlinked)}
    assert found == {1: {0}, 2: None}
    assert all(case.evidence is None for case in cases(translating(), PAIRS[0]))


@KINDS
def test_without_a_translation_the_model_translates(kind: str) -> None:
    adapter = translating(kind)
    [[best]] = adapter.translator(["the black cat"])
    for case in cases(adapter, "the black cat"):
        step = len(case.row.decoder_ids) - 1
        assert list(case.row.decoder_ids[1:]) == best.tokens[:step] and step < len(best.tokens)
        assert case.expected is None  # nobody knows what would be right


def test_other_examples_are_refused() -> None:
    with pytest.raises(SettingError, match="A translator takes sentences, not texts with labels"):
        cases(translating(), Labelled("a cat", "x"))


def test_out_of_vocabulary_words_have_columns_of_their_own() -> None:
    """The same ones whatever is asked together, and whatever is taken away."""
    adapter = translating("pointer")
    laura, paul = (oov_id(word, SIZE) for word in ("Laura", "Paul"))
    first, _ = cases(adapter, ("Laura saw Paul", "Paul Laura"))
    assert first.row.oov_ids == (laura, paul) and first.row.ids == (laura, TOKENIZER.id("▁saw"), paul, END)
    assert first.expected == SIZE + 1 and adapter.label(first.expected) == "a word of the source"
    assert adapter.input_ids([first.row])[0].tolist()[0] == TOKENIZER.special.unknown
    others = rows(adapter, ("Zoe saw the film", "Zoe saw"), ("it was bad", "a film"))
    with torch.no_grad():
        alone = adapter.log_probs([first.row])[0]
        together = adapter.log_probs([*others, first.row])[-1]
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
        p = alone.exp()
        assert p[SIZE : SIZE + 2].min() > 0 and not p[SIZE + 2 :].any()
        # without Laura nobody can say her, and Paul stays where he was
        left = adapter.log_probs([first.row.without([0])])[0].exp()
        assert left[SIZE] == 0 and left[SIZE + 1] > 0


@torch.no_grad()
def test_a_copied_word_has_the_probability_of_the_translator() -> None:
    adapter = translating("pointer")
    source, target = "Laura saw Paul", "Paul saw Laura"
    [read] = adapter.translator.score([(source, target)])
    for case in cases(adapter, (source, target)):
        step = len(case.row.decoder_ids) - 1
        assert adapter.log_probs([case.row])[0, case.expected].item() == pytest.approx(read.log_probs[step], abs=1e-4)


def test_a_word_that_is_in_neither_is_unknown() -> None:
    adapter = translating("pointer")
    found = [case for seed in range(9) for case in adapter.make_cases(("the film", "Zoe was bad"), 0, Random(seed))]
    by_step = {len(case.row.decoder_ids) - 1: case for case in found}
    unknown = TOKENIZER.special.unknown
    assert by_step[0].expected == unknown and by_step[1].row.decoder_ids == (START, unknown)
