"""Translators of ours asked for a word: at its own step, whatever is asked together, copied words in their columns."""

from __future__ import annotations

from random import Random

import pytest
import torch

from faithfulness.toys import PAIRS, SIZE, TOKENIZER, cases, rows, translating
from regard.adapters.translator import UNKNOWN
from regard.errors import SettingError
from regard.text.examples import Labelled, Translation
from regard.text.tokenizers.oov import number_of

KINDS = pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
START, END = (TOKENIZER.special.need(role) for role in ("start", "end"))


@KINDS
@torch.no_grad()
def test_a_padded_batch_says_what_each_row_says_alone(kind: str) -> None:
    asker = translating(kind)
    given = rows(asker, *PAIRS)
    together = asker.log_probs(given)
    assert together.size(1) == SIZE + (UNKNOWN if kind == "pointer" else 0)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(len(given)), atol=1e-4, rtol=0)
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], asker.log_probs([row])[0], atol=1e-5, rtol=1e-4)


@KINDS
def test_it_is_asked_for_words_of_the_translation(kind: str) -> None:
    asker = translating(kind)
    target = TOKENIZER.encode("he did not").ids
    steps = set()
    for seed in range(12):
        found = asker.cases(("the black cat", "he did not"), 3, Random(seed))
        assert len(found) == 2
        for case in found:
            step = len(case.row.written) - 1
            assert list(case.row.written) == [START, *target[:step]] and case.expected == target[step]
            assert list(case.row.ids) == [*TOKENIZER.encode("the black cat").ids, END]
            assert case.row.free == (True, True, True, False) and case.number == 3
            steps.add(step)
    assert steps == {0, 1, 2}


@KINDS
@torch.no_grad()
def test_taking_a_word_away_is_a_source_without_it(kind: str) -> None:
    asker = translating(kind)
    [row, *_] = rows(asker, ("the black cat saw it", "he did"))
    [shorter, *_] = rows(asker, ("the cat saw it", "he did"))
    assert row.without([1]) == shorter


def test_where_each_place_looks() -> None:
    asker = translating("transformer")
    given = rows(asker, *PAIRS)
    steps = [len(row.written) - 1 for row in given]
    told = {
        place: (asker.attends_to_text(place), asker.attends_from_text(place), asker.readout_position(place, given))
        for place in ("encoder.blocks.0.self", "decoder.0.self", "decoder.1.cross")
    }
    assert told == {
        "encoder.blocks.0.self": (True, True, None),
        "decoder.0.self": (False, False, steps),
        "decoder.1.cross": (True, False, steps),
    }
    assert (translating().attends_to_text("decoder"), translating().attends_from_text("decoder")) == (True, False)


def test_links_say_which_words_decide() -> None:
    example = Translation("the black cat", "he did not", ((0, 0), (1, 2), (2, 1), (2, 2)))
    known = {0: {0}, 1: {2}, 2: {1, 2}}
    for seed in range(6):
        for case in translating().cases(example, 0, Random(seed)):
            assert case.evidence == known[len(case.row.written) - 1]
    unlinked = Translation("the black cat", "he did", ((0, 0),))
    found = {len(case.row.written): case.evidence for case in cases(translating(), unlinked)}
    assert found == {1: {0}, 2: None}
    assert all(case.evidence is None for case in cases(translating(), PAIRS[0]))


@KINDS
def test_without_a_translation_it_is_asked_about_its_own(kind: str) -> None:
    asker = translating(kind)
    [[best]] = asker.translator(["the black cat"])
    for case in cases(asker, "the black cat"):
        step = len(case.row.written) - 1
        assert list(case.row.written[1:]) == best.tokens[:step] and step < len(best.tokens)
        assert case.expected is None  # nobody knows what would be right


def test_other_examples_are_refused() -> None:
    with pytest.raises(SettingError, match="texts with labels, expected sentences, for a translator"):
        cases(translating(), Labelled("a cat", "x"))


def test_words_outside_the_vocabulary_have_columns_of_their_own() -> None:
    """The same ones whatever is asked together, and whatever is taken away."""
    asker = translating("pointer")
    laura, paul = (number_of(word, SIZE) for word in ("Laura", "Paul"))
    first, _ = cases(asker, ("Laura saw Paul", "Paul Laura"))
    assert first.row.unknown == (laura, paul) and first.row.ids == (laura, TOKENIZER.id("▁saw"), paul, END)
    assert first.expected == SIZE + 1 and asker.label(first.expected) == "a word of the source"
    assert asker.input_ids([first.row])[0].tolist()[0] == TOKENIZER.special.unknown
    others = rows(asker, ("Zoe saw the film", "Zoe saw"), ("it was bad", "a film"))
    with torch.no_grad():
        alone = asker.log_probs([first.row])[0]
        together = asker.log_probs([*others, first.row])[-1]
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
        p = alone.exp()
        assert p[SIZE : SIZE + 2].min() > 0 and not p[SIZE + 2 :].any()
        # without Laura nobody can say her, and Paul stays where he was
        left = asker.log_probs([first.row.without([0])])[0].exp()
        assert left[SIZE] == 0 and left[SIZE + 1] > 0


@torch.no_grad()
def test_a_copied_word_is_as_likely_as_the_translator_says() -> None:
    asker = translating("pointer")
    source, target = "Laura saw Paul", "Paul saw Laura"
    [read] = asker.translator.read([(source, target)])
    for case in cases(asker, (source, target)):
        step = len(case.row.written) - 1
        assert asker.log_probs([case.row])[0, case.expected].item() == pytest.approx(read.log_probs[step], abs=1e-4)


def test_a_word_that_is_in_neither_is_unknown() -> None:
    asker = translating("pointer")
    found = [case for seed in range(9) for case in asker.cases(("the film", "Zoe was bad"), 0, Random(seed))]
    by_step = {len(case.row.written) - 1: case for case in found}
    unknown = TOKENIZER.special.unknown
    assert by_step[0].expected == unknown and by_step[1].row.written == (START, unknown)
