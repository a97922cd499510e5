"""The next token of a truncated text, by a language model."""

from __future__ import annotations

from random import Random

import pytest
import torch

from faithfulness.toys import QUICK, SIZE, TEXTS, TOKENIZER, language_model, lively, rows
from regard.adapters.case import MIN_PREFIX
from regard.adapters.causal_lm import CausalLMAdapter
from regard.attention.scores import Bilinear
from regard.errors import SettingError
from regard.faithfulness.audit import audit
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.copy_gates import Gate
from regard.models.embedding import WordEmbedding
from regard.models.rnn import RecurrentLayers
from regard.text.examples import Labelled


def attentive(copy: bool) -> CausalLMAdapter:
    look = PastAttention(Bilinear(8), copy=Gate(8) if copy else None)
    model = AttentiveLM(WordEmbedding(SIZE, 6, TOKENIZER.special.unknown), RecurrentLayers("gru", 6, 8), look)
    return CausalLMAdapter(lively(model), TOKENIZER, "attentive")


ASKERS = {"gpt": language_model, "attentive": lambda: attentive(False), "copying": lambda: attentive(True)}
every_asker = pytest.mark.parametrize("name", ASKERS)


@every_asker
@torch.no_grad()
def test_a_padded_batch_equals_its_rows_alone(name: str) -> None:
    adapter = ASKERS[name]()
    given = rows(adapter, *TEXTS)
    together = adapter.log_probs(given)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(len(given)))
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], adapter.log_probs([row])[0], atol=1e-5, rtol=1e-4)


def test_a_random_prefix_and_its_next_token() -> None:
    adapter, ids, cuts = language_model(), TOKENIZER.encode(TEXTS[2]).ids, set()
    for seed in range(20):
        [case] = adapter.make_cases(TEXTS[2], 4, Random(seed))
        cut = len(case.row.ids)
        assert list(case.row.ids) == ids[:cut] and case.expected == ids[cut] and len(case.tokens) == cut
        assert case.row.removable == (True,) * (cut - 1) + (False,) and case.number == 4
        cuts.add(cut)
    assert min(cuts) >= MIN_PREFIX and max(cuts) < len(ids) and len(cuts) > 3


def test_short_texts_give_no_case_and_long_ones_are_truncated() -> None:
    adapter = language_model()
    assert adapter.make_cases("a dull cat", 0, Random(0)) == []
    longest = adapter.model.max_positions
    for seed in range(10):
        [case] = adapter.make_cases("the film was bad " * 20, 0, Random(seed))
        assert len(case.row.ids) <= longest
        adapter.log_probs([case.row])


def test_other_examples_are_refused() -> None:
    with pytest.raises(SettingError, match="a Labelled, expected a text, for a language model"):
        language_model().make_cases(Labelled("a b c d", "x"), 0, Random(0))


@every_asker
def test_it_is_audited(name: str) -> None:
    report = audit(ASKERS[name](), TEXTS, settings=QUICK)
    assert report.facts["decision"] == "next word" and report.facts["decisions"] == 2
    assert any(one.kind == "layer" for one in report.verdicts)
