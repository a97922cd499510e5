"""Training losses of GPT and BERT as one graph for torch.compile: nothing cuts it, and it gives the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from regard.attention import Observe, capture
from regard.models.bert import Bert, BertSize, MaskedLM
from regard.models.blocks import BERT
from regard.models.chunked_cross_entropy import LinearCrossEntropy
from regard.models.gpt import GPT

V, T = 50, 12


def gpt(documents: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    torch.manual_seed(0)
    model = GPT(V, 16, 2, 2, T)
    ids, targets = torch.randint(0, V, (2, 3, T))
    which = torch.arange(T).expand(3, T) // 5 if documents else None
    return model, lambda called: called(ids, which, head=LinearCrossEntropy(targets, 0.1))


def bert(padded: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    torch.manual_seed(0)
    model = MaskedLM(
        Bert.of(V, BertSize(2, 16, 2), max_positions=T, dropout=0.0, block=replace(BERT, attention_dropout=0.0))
    )
    ids, places = torch.randint(0, V, (3, T)), torch.tensor([1, 5, 2 * T + 3])
    lengths = torch.tensor([T, 4, T - 1]) if padded else None

    def loss(called: nn.Module) -> Tensor:
        said = called(ids, lengths, ids % 2, places, head=LinearCrossEntropy(ids.flatten()[places]))
        return said.logits + said.next_sentence.square().sum()

    return model, loss


CASES = {
    "gpt": lambda: gpt(False),
    "gpt, documents": lambda: gpt(True),
    "bert": lambda: bert(False),
    "bert, padded": lambda: bert(True),
}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_one_graph(name: str, precision: str) -> None:
    torch._dynamo.reset()
    model, loss = CASES[name]()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    found = []
    for called in (model, compiled, compiled):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            total = loss(called)
        found.append((total, torch.autograd.grad(total, list(model.parameters()), allow_unused=True)))
    assert counter.frame_count == 1
    for total, slopes in found[1:]:
        torch.testing.assert_close(total, found[0][0])
        for got, expected in zip(slopes, found[0][1], strict=True):
            torch.testing.assert_close(got, expected)


def test_whoever_listens_hears_a_compiled_model_too() -> None:
    """While somebody listens a second graph computes what is requested; afterwards the first one serves again."""
    torch._dynamo.reset()
    model, loss = gpt(False)
    alone = loss(model)
    counter = CompileCounterWithBackend("eager")
    model.compile(backend=counter)
    torch.testing.assert_close(loss(model), alone)
    assert counter.frame_count == 1
    for _ in range(2):
        with capture(model, "decoder.*", Observe(entropy=True)) as heard:
            torch.testing.assert_close(loss(model), alone)
        assert heard["decoder.1.self"].entropy is not None
        torch.testing.assert_close(loss(model), alone)
        assert counter.frame_count == 2


def test_other_numbers_of_hidden_words_make_no_more_than_two_graphs() -> None:
    """One for the first number, one for any."""
    torch._dynamo.reset()
    model, _ = bert(False)
    counter = CompileCounterWithBackend("eager")
    model.compile(fullgraph=True, backend=counter)
    ids = torch.randint(0, V, (3, T))
    for count in (5, 7, 11, 4):
        places = torch.arange(count) * 3
        model(ids, None, ids % 2, places, head=LinearCrossEntropy(ids.flatten()[places])).logits.backward()
    assert counter.frame_count == 2
