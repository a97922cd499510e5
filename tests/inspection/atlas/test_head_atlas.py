"""An atlas of small models: in one process or several, saved and loaded, drawn, and refused where it cannot be made."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from regard.adapters import ModelAdapter, adapter
from regard.attention.positions import Rotary
from regard.errors import RecordError, SettingError
from regard.inspection.atlas.head_atlas import Atlas, accumulate_passages, atlas
from regard.inspection.atlas.label_criteria import UNKNOWN
from regard.inspection.atlas.passages import Passage, to_passages
from regard.inspection.atlas.run_model import run_passage
from regard.inspection.atlas.word_statistics import count_words
from regard.inspection.record.collect import collect
from regard.models.bert import SIZES, Bert
from regard.models.gpt import GPT
from regard.text import grammar
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordPiece
from regard.training.distributed import init_distributed
from training.together import run

TEXTS = 14


@cache
def sentences() -> list[str]:
    return [" ".join(one.words[:14]) for one in grammar.GeneratedCorpus(grammar.tagged, 2 * TEXTS, "test")]


@cache
def reader() -> ModelAdapter:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(WordPiece(300), sentences())
    model = Bert.of(len(tokenizer), SIZES["tiny"], max_positions=96).eval()
    with torch.no_grad():  # heads that look somewhere: fresh ones look everywhere alike
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.mul_(4)
    return adapter(model, tokenizer)


def pairs() -> list[tuple[str, str]]:
    return list(zip(sentences()[:TEXTS], sentences()[TEXTS:], strict=True))


def test_the_maps_of_a_passage_are_the_weights_of_every_place() -> None:
    one = Passage(*pairs()[0])
    record = collect(reader(), one.text, one.other)
    found = list(run_passage(reader(), one))
    assert [place.place for place in found] == [place.name for place in record.places]
    for place, kept in zip(found, record.places, strict=True):
        assert place.weights.shape == (kept.heads, kept.T, kept.S) and place.is_self and place.visible.all()
        torch.testing.assert_close(place.weights[1].float(), kept.tile(1), atol=2e-3, rtol=0)
        torch.testing.assert_close(place.weights.sum(-1), torch.ones(kept.heads, kept.T).double())


def test_a_causal_model_sees_the_past() -> None:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(WordPiece(300), sentences())
    model = adapter(GPT(len(tokenizer), 16, 2, 2, Rotary(8)).eval(), tokenizer)
    for place in run_passage(model, Passage(sentences()[0])):
        T = place.weights.size(1)
        assert place.visible.equal(torch.ones(T, T, dtype=torch.bool).tril())
        assert not place.weights.triu(1).any()


def _told() -> str:
    torch.set_num_threads(1)
    with init_distributed("cpu") as world:
        return json.dumps(atlas(reader(), pairs(), world=world).to_dict())


def test_two_ranks_equal_one_bit_for_bit() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = json.dumps(atlas(reader(), pairs()).to_dict())
    finally:
        torch.set_num_threads(threads)
    assert run(_told, 2) == [alone] * 2


def test_an_atlas_is_saved_and_read_back(tmp_path: Path) -> None:
    told: list[int] = []
    found = atlas(reader(), pairs(), on_progress=told.append)
    assert len(found.heads) == 4 and found.texts == TEXTS and sum(told) >= TEXTS
    path = found.save(tmp_path / "atlas.json")
    again = Atlas.load(path)
    assert again.to_dict() == found.to_dict()
    assert sum(found.counts.values()) >= len(found.heads) or UNKNOWN in found.counts
    for head in found.heads:
        assert set(head.examples) == set(head.names)
        for one in head.measures.values():
            assert one.weight.low <= one.weight.value + 0.05 and one.weight.high >= one.weight.value - 0.05
    for ending in (".svg", ".png", ".html"):
        first, second = (found.save(tmp_path / f"{name}{ending}").read_bytes() for name in "ab")
        assert first == second and len(first) > 1000
    assert "<script" not in (tmp_path / "a.html").read_text()


def test_html_in_texts_is_escaped(tmp_path: Path) -> None:
    texts = [f"<script>alert({n})</script> <b> {n} & {n}" for n in range(8)]
    path = atlas(reader(), texts).save(tmp_path / "a.html")
    assert "<script" not in path.read_text() and "<b>" not in path.read_text()


def test_the_maps_of_one_text_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    held, most = 0, 0
    import regard.inspection.atlas.head_atlas as module

    def watched(*given: object) -> object:
        nonlocal held, most
        held += 1
        most = max(most, held)
        yield from run_passage(*given)  # type: ignore[arg-type]
        held -= 1

    monkeypatch.setattr(module, "run_passage", watched)
    given = to_passages(pairs())
    accumulate_passages(reader(), given, count_words(given))
    assert most == 1


def test_unusable_texts_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="4 texts, expected at least 5"):
        atlas(reader(), sentences()[:4])
    with pytest.raises(SettingError, match=r"reading 'cat cat.*Longer texts can be truncated"):
        atlas(reader(), [" ".join(["cat"] * 200)] * 5, max_words=200)
    with pytest.raises(SettingError, match=r"Unknown file type '.gif'"):
        Atlas("m", 5, ()).save(tmp_path / "a.gif")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(RecordError, match="version None"):
        Atlas.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RecordError, match="cannot be read"):
        Atlas.load(tmp_path / "a.json")
