"""Words outside the vocabulary have numbers of their own, the same everywhere, and come back as they were spelled."""

import torch

from regard.text.tokenizers.oov import MAX_ID, compact_oov, decode_with_oov, encode_with_oov, oov_id
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordLevel

TOKENIZER = Tokenizer.train(WordLevel(100), ["raised rates . Ms. the"])
SIZE = len(TOKENIZER)


def test_known_words_keep_their_ids_and_unknown_ones_get_their_own() -> None:
    [one, two] = encode_with_oov(TOKENIZER, ["Ms. Yellen raised rates .", "the Fed , Yellen"])
    assert [number < SIZE for number in one.ids] == [True, False, True, True, True]
    assert one.ids[1] == two.ids[3] == oov_id("Yellen", SIZE) < MAX_ID
    assert two.spellings == {two.ids[1]: "Fed", two.ids[2]: ",", two.ids[3]: "Yellen"}
    assert len(set(two.ids)) == 4


def test_oov_words_round_trip() -> None:
    text = "Yellen raised the Fed 's rates ."
    [one] = encode_with_oov(TOKENIZER, [text])
    assert decode_with_oov(TOKENIZER, one.ids, one.spellings) == text


def test_oov_ids_without_a_spelling_are_shown_by_number() -> None:
    assert decode_with_oov(TOKENIZER, [SIZE + 2]) == "⟨2⟩"
    unknown = TOKENIZER.special.need("unknown")
    [rates] = TOKENIZER.encode("rates").ids
    assert decode_with_oov(TOKENIZER, [unknown, rates], unknown="⟨?⟩") == "⟨?⟩ rates"
    assert decode_with_oov(TOKENIZER, [unknown, rates]) == "rates"


def test_compacted_ids_count_on_from_the_vocabulary_and_have_a_way_back() -> None:
    ids = torch.tensor([[3, SIZE + 900, 5], [SIZE + 70, SIZE + 900, 0]])
    dense, table = compact_oov(ids, SIZE)
    assert dense.tolist() == [[3, SIZE + 1, 5], [SIZE, SIZE + 1, 0]]
    assert table.tolist() == [SIZE + 70, SIZE + 900]
    same, none = compact_oov(ids[:, :1], SIZE + 1000)
    assert (same.tolist(), len(none)) == (ids[:, :1].tolist(), 0)
