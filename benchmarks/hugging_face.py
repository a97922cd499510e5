"""BERT and GPT-2 beside Hugging Face's own, in one run: a training step, and greedy generation with a cache.

    python benchmarks/hugging_face.py [--rounds 5] [--only bert-base ...]

Training: masked tokens and next sentences, 8 x 128 tokens, 15% of them hidden, the same dropout, float32, forward, back
and AdamW (fused). Hugging Face's model computes the vocabulary layer for every token, ours for hidden ones. GPT-2 124M:
4 x 128 tokens, every one of which is predicted. Generation: GPT-2 124M in float32, a prompt of 64 tokens, 64 new ones,
the likeliest each time, at batch 1 and 8, with fresh weights (speed does not ask what they are); beside it the same
model exported to CTranslate2 in 8 bits, where that is installed. Rounds alternate; a ratio is the median over rounds of
Hugging Face's time over ours, with its quartiles: only where the lower one is above 1 is ours faster. Writes
benchmarks/results/hugging-face.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from run_record import ratios, run_record, shown

from regard.cli.process_tuning import prepare_machine

Work = Callable[[], object]
OURS, THEIRS, INT8 = "ours", "Hugging Face", "CTranslate2 int8"
VOCABULARY, ROWS, LENGTH, HIDDEN = 30522, 8, 128, 0.15
PROMPT, NEW = 64, 64
GOALS = {"bert-base": 1.2, "bert-small": 1.7, "gpt2-step": 1.0, "generate-1": 1.3, "generate-8": 1.3}


def bert(size: str) -> dict[str, Work]:
    """A training step."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    from regard.models.bert import SIZES, Bert, MaskedLM
    from regard.models.blocks import BERT
    from regard.models.cross_entropy import Logits

    torch.manual_seed(0)
    shape = SIZES[size]
    # both drop what is added to the stream, and the weights of attention
    ours = MaskedLM(Bert.of(VOCABULARY, shape, dropout=0.1, block=replace(BERT, attention_dropout=0.1))).train()
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.width // 64,
        intermediate_size=4 * shape.width,
    )
    theirs = BertForPreTraining(config).train()
    ids = torch.randint(1000, VOCABULARY, (ROWS, LENGTH))
    segments = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(ROWS, -1)
    follows, lengths = torch.randint(0, 2, (ROWS,)), torch.full((ROWS,), LENGTH)
    places = torch.randperm(ROWS * LENGTH)[: int(HIDDEN * ROWS * LENGTH)].sort().values
    targets = ids.flatten()[places]
    labels = torch.full_like(ids, -100)
    labels.view(-1)[places] = targets

    def our_loss() -> torch.Tensor:
        said = ours(ids, lengths, segments, places)
        return Logits(said.logits).nll(targets).mean() + Logits(said.next_sentence).nll(follows).mean()

    def their_loss() -> torch.Tensor:
        found: torch.Tensor = theirs(ids, token_type_ids=segments, labels=labels, next_sentence_label=follows).loss
        return found

    return {OURS: _step(ours, our_loss), THEIRS: _step(theirs, their_loss)}


def gpt2() -> tuple[object, object]:
    """GPT-2 124M, ours and theirs."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from regard.models.gpt import GPT

    torch.manual_seed(0)
    return GPT(50257, 768, 12, 12, 1024), GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def gpt2_step() -> dict[str, Work]:
    import torch

    from regard.models.cross_entropy import Logits

    ours, theirs = gpt2()
    ids = torch.randint(0, 50257, (4, LENGTH + 1))

    def our_loss() -> torch.Tensor:
        return Logits(ours(ids[:, :-1])).nll(ids[:, 1:]).mean()

    def their_loss() -> torch.Tensor:
        logits = theirs(ids[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return {OURS: _step(ours.train(), our_loss), THEIRS: _step(theirs.train(), their_loss)}


def generate(rows: int) -> dict[str, Work]:
    import torch

    from regard.decoding.greedy import Greedy
    from regard.decoding.search import Rules
    from regard.models.packed_linear import pack_for_decoding

    plain, theirs = (model.eval() for model in gpt2())
    ours = pack_for_decoding(plain, rows)  # as `regard generate` does
    ids = torch.randint(0, 50257, (rows, PROMPT))
    lengths = torch.full((rows,), PROMPT - 1)

    @torch.no_grad()
    def our_text() -> object:
        state = ours.start(ids[:, :-1], lengths)
        return Greedy()(ours, state, ids[:, -1], Rules(None, max_length=NEW))

    @torch.no_grad()
    def their_text() -> object:
        return theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
        )

    works = {OURS: our_text, THEIRS: their_text}
    if find_spec("ctranslate2") is not None:
        works[INT8] = _int8(plain, ids.tolist())
    return works


def _int8(model: object, prompts: list[list[int]]) -> Work:
    """The same model in CTranslate2, its matrices in 8 bits."""
    import ctranslate2

    from regard.exports.ctranslate2.models import model_spec
    from regard.exports.ctranslate2.vocabulary import ExportVocabularies

    tokens = [str(number) for number in range(50257)]
    spec = model_spec(model, ExportVocabularies(tokens, tokens, tokens[0], tokens[0], tokens[0]))
    with TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize("int8")
        spec.save(folder)
        generator = ctranslate2.Generator(folder, compute_type="int8", intra_threads=2)
    texts = [[tokens[number] for number in prompt] for prompt in prompts]
    return lambda: generator.generate_batch(
        texts, max_length=NEW, min_length=NEW, include_prompt_in_result=False, sampling_topk=1
    )


WORKS: dict[str, Callable[[], dict[str, Work]]] = {
    "bert-small": lambda: bert("small"),
    "bert-base": lambda: bert("base"),
    "gpt2-step": gpt2_step,
    "generate-1": lambda: generate(1),
    "generate-8": lambda: generate(8),
}


def _step(model: object, loss: Callable[[], object]) -> Work:
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        loss().backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/hugging-face.json"))
    told = parser.parse_args()
    prepare_machine()
    found = {}
    for name in told.only:
        works = WORKS[name]()
        for who in (OURS, THEIRS):  # the first time is for allocators and caches
            works[who]()
        times: dict[str, list[float]] = {who: [] for who in works}
        # the two that are compared take turns; what is shown beside comes after, for its idle threads wait by spinning
        turns = [(who,) for who in works if who == INT8 for _ in range(told.rounds)]
        for turn in [(OURS, THEIRS)] * told.rounds + turns:
            for who in turn:
                begun = time.perf_counter()
                works[who]()
                times[who].append(time.perf_counter() - begun)
        ratio = ratios(times[THEIRS], times[OURS])
        found[name] = {"ratio": ratio, "goal": GOALS[name], "seconds": times}
        spent = "   ".join(f"{who} {median(all_) * 1e3:8.1f} ms" for who, all_ in times.items())
        print(f"{name:<12} {shown(ratio)}x (goal {GOALS[name]}x)   {spent}", flush=True)
    told.out.parent.mkdir(parents=True, exist_ok=True)
    record = run_record("transformers", "ctranslate2", seeds=[0], rounds=told.rounds)
    told.out.write_text(json.dumps({"machine": record, "found": found}, indent=2) + "\n")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, in which a file goes by the name of the library
    main()
