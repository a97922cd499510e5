"""Words outside the vocabulary have numbers of their own, the same everywhere, and come back as they were spelled."""

import torch

from regard.text.tokenizers.kinds import Words
from regard.text.tokenizers.oov import MOST, compacted, number_of, opened, spelled
from regard.text.tokenizers.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(Words(100), ["raised rates . Ms. the"])
SIZE = len(TOKENIZER)


def test_known_words_keep_their_ids_and_unknown_ones_get_their_own() -> None:
    [one, two] = opened(TOKENIZER, ["Ms. Yellen raised rates .", "the Fed , Yellen"])
    assert [number < SIZE for number in one.ids] == [True, False, True, True, True]
    assert one.ids[1] == two.ids[3] == number_of("Yellen", SIZE) < MOST
    assert two.spellings == {two.ids[1]: "Fed", two.ids[2]: ",", two.ids[3]: "Yellen"}
    assert len(set(two.ids)) == 4


def test_what_is_opened_is_spelled_as_it_was() -> None:
    text = "Yellen raised the Fed 's rates ."
    [one] = opened(TOKENIZER, [text])
    assert spelled(TOKENIZER, one.ids, one.spellings) == text


def test_what_nobody_can_spell_is_shown_by_its_number() -> None:
    assert spelled(TOKENIZER, [SIZE + 2]) == "⟨2⟩"
    unknown = TOKENIZER.special.need("unknown")
    [rates] = TOKENIZER.encode("rates").ids
    assert spelled(TOKENIZER, [unknown, rates], unknown="⟨?⟩") == "⟨?⟩ rates"
    assert spelled(TOKENIZER, [unknown, rates]) == "rates"


def test_compacted_ids_count_on_from_the_vocabulary_and_have_a_way_back() -> None:
    ids = torch.tensor([[3, SIZE + 900, 5], [SIZE + 70, SIZE + 900, 0]])
    dense, table = compacted(ids, SIZE)
    assert dense.tolist() == [[3, SIZE + 1, 5], [SIZE, SIZE + 1, 0]]
    assert table.tolist() == [SIZE + 70, SIZE + 900]
    same, none = compacted(ids[:, :1], SIZE + 1000)
    assert (same.tolist(), len(none)) == (ids[:, :1].tolist(), 0)
