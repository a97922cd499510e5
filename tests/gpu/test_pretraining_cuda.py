"""What pre-training is quick by on a GPU: dropout in attention, cuDNN's kernels, surprises without logits, our own."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from error_bounds import STATISTIC
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # where pytest is run without the project's settings
from regard.attention import attend, masks
from regard.attention.attend import choose
from regard.attention.residual import _add_norm
from regard.errors import TrainingError
from regard.models import chunked_cross_entropy
from regard.models.blocks import gelu_feedforward
from regard.models.chunked_cross_entropy import LinearCrossEntropy
from regard.models.gelu import _gelu_bias
from regard.models.gpt import GPT
from regard.runs.weights import weights_of
from regard.text.batches.batch import BlockBatch
from regard.text.examples import IGNORED
from regard.training.distributed import World
from regard.training.loop import Loop
from regard.training.objectives.base import Carry, Loss
from regard.training.objectives.lm import CausalLMObjective
from regard.training.recipe import PreparedTask
from training.little import Guess, little, recipe

pytestmark = pytest.mark.gpu

GPU = World(device=torch.device("cuda", 0))


def inputs(T: int, dtype: torch.dtype, width: int = 64, heads: int = 4) -> list[Tensor]:
    """Queries, keys and values cut from one projection, as layers do it."""
    torch.manual_seed(0)
    joint = torch.randn(2, T, 3 * heads * width, device="cuda").to(dtype)
    return [x.unflatten(-1, (heads, width)).transpose(1, 2).detach().requires_grad_() for x in joint.chunk(3, -1)]


def everything(q: Tensor, k: Tensor, v: Tensor, mask: masks.Mask | None, backend: str) -> list[Tensor]:
    got = attend(q, k, v, mask=mask, backend=backend)
    towards = torch.randn(got.output.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    slopes = torch.autograd.grad(got.output, [q, k, v], towards.to(got.output.dtype))
    return [got.output.detach(), got.lse.detach(), *slopes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [63, 64, 65, 100, 127, 129, 500, 1000, 1023, 1024])
@pytest.mark.parametrize("width", [64, 128, 80])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_lengths_of_all_kinds(dtype: torch.dtype, width: int, T: int, causal: bool) -> None:
    """Output and gradients err at most twice as much as plain PyTorch in the same numbers; the log-sum-exp is float32's
    wherever it comes from."""
    q, k, v = inputs(T, dtype, width)
    mask = masks.Causal() if causal else None
    assert choose(q, k, v, mask=mask).backend == "triton"  # the same kernel, and statistics if they are asked for
    truth = everything(*(x.detach().double().requires_grad_() for x in (q, k, v)), mask, "plain")
    usual = everything(q, k, v, mask, "plain")
    got = everything(q, k, v, mask, "sdpa")
    for number, (mine, plain, true) in enumerate(zip(got, usual, truth, strict=True)):
        error, allowed = ((x.double() - true).abs().max() for x in (mine, plain))
        allowed = STATISTIC if number == 1 else 2 * allowed + 4 * torch.finfo(dtype).eps * float(true.abs().max())
        assert error <= allowed, number


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("T", [128, 48])
@pytest.mark.parametrize("name", ["everything", "causal", "padding"])
def test_dropout_is_right_on_average_and_leaves_the_log_sum_exp_alone(name: str, T: int, dtype: torch.dtype) -> None:
    q, k, v = inputs(T, dtype)
    mask = {"everything": None, "causal": masks.Causal(), "padding": masks.Padding([T, T // 2])}[name]
    calm = attend(q, k, v, mask=mask)
    torch.manual_seed(0)
    drawn = [attend(q, k, v, mask=mask, dropout=0.3, backend="sdpa") for _ in range(400)]
    for one in drawn[:3]:
        torch.testing.assert_close(one.lse, calm.lse, rtol=0, atol=1e-5)
    assert not torch.equal(drawn[0].output, drawn[1].output)
    many = torch.stack([one.output.float() for one in drawn])
    spread = many.std(0) / math.sqrt(len(many))
    assert ((many.mean(0) - calm.output.float()).abs() <= 6 * spread + 1e-2).all()


def test_dropout_drops_the_same_in_the_backward_pass() -> None:
    """With v = identity the output is the dropped weights; what v learns must be their transpose."""
    T = 64
    q, k, _ = inputs(T, torch.bfloat16)
    v = torch.eye(T, device="cuda", dtype=torch.bfloat16).expand(2, 4, T, T).clone().requires_grad_()
    got = attend(q, k, v, dropout=0.5, backend="sdpa")
    share = (got.output == 0).float().mean()
    assert 0.45 < share < 0.55
    towards = torch.randn_like(got.output)
    (slope,) = torch.autograd.grad(got.output, v, towards)
    torch.testing.assert_close(slope, got.output.detach().mT @ towards, atol=5e-2, rtol=5e-2)


def test_dropout_repeats_when_the_rng_state_is_restored() -> None:
    q, k, v = inputs(128, torch.bfloat16)
    state = torch.cuda.get_rng_state()
    first = attend(q, k, v, dropout=0.1).output
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, attend(q, k, v, dropout=0.1).output)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("words", [50304, 30522, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_errs_no_more_than_twice_torchs(dtype: torch.dtype, words: int, smoothing: float) -> None:
    torch.manual_seed(0)
    places = 9000 if words > 1000 else 300
    states, near = (torch.randn(n, 64, device="cuda", requires_grad=True) for n in (places, words))
    bias = torch.randn(words, device="cuda", requires_grad=True)
    targets = torch.randint(0, words, (places,), device="cuda")
    targets[:40] = IGNORED

    def usual(*leaves: Tensor) -> list[Tensor]:
        logits = nn.functional.linear(*leaves)
        total = nn.functional.cross_entropy(
            logits.float() if logits.dtype != torch.float64 else logits,
            targets,
            reduction="sum",
            ignore_index=IGNORED,
            label_smoothing=smoothing,
        )
        return [total.detach(), *torch.autograd.grad(total, leaves)]

    truth = usual(*(x.detach().double().requires_grad_() for x in (states, near, bias)))
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        plain = usual(states, near, bias)
        total = LinearCrossEntropy(targets, smoothing)(states, near, bias)
    got = [total.detach(), *torch.autograd.grad(total, [states, near, bias])]
    for mine, other, true in zip(got, plain, truth, strict=True):
        error, allowed = ((x.double() - true).abs().max() for x in (mine, other))
        assert error <= 2 * allowed + 1e-5 * true.abs().max()


def test_cross_entropy_of_many_chunks_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What words want is added up inside the products."""
    torch.manual_seed(0)
    states, near = (torch.randn(n, 64, device="cuda", requires_grad=True) for n in (1000, 5000))
    targets, found = torch.randint(0, 5000, (1000,), device="cuda"), []
    for held in (2**29, 2**20):
        monkeypatch.setitem(chunked_cross_entropy.MAX_LOGITS, "cuda", held)
        with torch.autocast("cuda", torch.bfloat16):
            total = LinearCrossEntropy(targets)(states, near, None)
        found.append([total.detach(), *torch.autograd.grad(total, [states, near])])
    assert len(chunked_cross_entropy._chunks(1000, 5056, "cuda")) > 3
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(one.abs().max()))


def test_cross_entropy_never_holds_all_logits() -> None:
    states, near = (torch.randn(n, 64, device="cuda", requires_grad=True) for n in (32768, 50304))
    targets = torch.randint(0, 50304, (32768,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", torch.bfloat16):
        LinearCrossEntropy(targets)(states, near, None).backward()
    assert torch.cuda.max_memory_allocated() - before < 1.2 * 2**30  # all of them in bf16 would be 3.1 GB


def test_a_gpt_compiled_as_one_graph_gives_the_same() -> None:
    torch.manual_seed(0)
    model = GPT(1000, 128, 2, 2, 128).cuda()
    ids, targets = torch.randint(0, 1000, (2, 4, 128), device="cuda")
    found = []
    for called in (model, torch.compile(model, fullgraph=True)):
        with torch.autocast("cuda", torch.bfloat16):
            total = called(ids, head=LinearCrossEntropy(targets)) / targets.numel()
        found.append((total, torch.autograd.grad(total, list(model.parameters()))))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=2e-3, atol=2e-3)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=0.1, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_errs_no_more_than_twice_what_torch_does(approximate: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.linspace(-14, 14, 3000 * 333, device="cuda").to(dtype).view(3000, 333)
    towards, bias = torch.randn_like(x), torch.randn(333, device="cuda")

    def usual(x: Tensor, bias: Tensor) -> Tensor:
        return nn.functional.gelu(x + bias.to(x.dtype), approximate=approximate)

    def all_of(bend: Callable[..., Tensor], x: Tensor, bias: Tensor) -> list[Tensor]:
        leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
        found = bend(*leaves)
        return [found.detach(), *torch.autograd.grad(found, leaves, towards.to(x.dtype))]

    truth, plain = all_of(usual, x.double(), bias.double()), all_of(usual, x, bias)
    mine = all_of(lambda x, bias: _gelu_bias(x, bias, approximate == "tanh"), x, bias)
    for got, other, true in zip(mine, plain, truth, strict=True):
        assert got.dtype == other.dtype
        error, allowed = (((one - true).abs() / (1e-3 + true.abs())).max() for one in (got, other))
        assert error <= 2 * allowed


def test_a_compiled_feed_forward_layer_gives_the_same() -> None:
    torch.manual_seed(0)
    layer, x = gelu_feedforward(64, 256).cuda(), torch.randn(5, 77, 64, device="cuda", requires_grad=True)
    found = []
    for called in (layer, torch.compile(layer, fullgraph=True)):
        with torch.autocast("cuda", torch.bfloat16):
            out = called(x)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.02 * float(one.abs().max()))


def test_a_residual_sum_and_its_norm_err_no_more_than_twice_the_plain_lines() -> None:
    torch.manual_seed(0)
    x, more = 3 + torch.randn(5000, 768, device="cuda"), torch.randn(5000, 768, device="cuda").bfloat16()
    weight, bias = 1 + 0.3 * torch.randn(2, 768, device="cuda")
    towards = torch.randn(5000, 768, device="cuda"), torch.randn(5000, 768, device="cuda").bfloat16()

    def plain(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        total = x + more
        return total, nn.functional.layer_norm(total, (768,), weight, bias).to(more.dtype)

    def all_of(way: Callable[..., tuple[Tensor, ...]], *leaves: Tensor) -> list[Tensor]:
        leaves = tuple(one.clone().requires_grad_() for one in leaves)
        found = way(*leaves)[:2]
        wanted = [one.to(other.dtype) for one, other in zip(towards, found, strict=True)]
        return [*(one.detach() for one in found), *torch.autograd.grad(found, leaves, wanted)]

    leaves = (x, more, weight, bias)
    truth, usual = all_of(plain, *(one.double() for one in leaves)), all_of(plain, *leaves)
    mine = all_of(lambda *all: _add_norm(*all, 1e-5), *leaves)
    assert torch.equal(mine[0], usual[0])
    for got, other, true in zip(mine, usual, truth, strict=True):
        error, allowed = ((one - true).abs().max() for one in (got, other))
        assert got.dtype == other.dtype and error <= 2 * allowed + 1e-6 * true.abs().max()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_training_by_graphs_is_the_compiled_one(accumulate: int) -> None:
    """Of rows of one length, so that a graph is recorded and replayed."""
    found = []
    for how in (True, "graphs"):
        torch._dynamo.reset()
        plan = recipe(train={"compile": how, "accumulate": accumulate, "precision": "bf16", "clip": 1.0})
        torch.manual_seed(0)
        model = GPT(200, 64, 2, 2, 64)
        batches = [torch.randint(0, 200, (4, 65)) for _ in range(12)]
        blocks = [BlockBatch(torch.arange(4), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()) for ids in batches]
        loop = Loop(PreparedTask(plan, model, CausalLMObjective(None, 1.0, 64), Endless(blocks), None), 20, GPU)  # type: ignore[arg-type]
        if how is True:
            model.compile()
        loop.run()
        found.append({name: tensor.clone() for name, tensor in weights_of(model).items()})
    for name, tensor in found[0].items():
        other = found[1][name]
        if name.endswith("joint.bias"):  # that of keys changes no weight, so its gradient is rounding alone
            tensor, other = (torch.cat([x[:64], x[128:]]) for x in (tensor, other))
        torch.testing.assert_close(other, tensor, rtol=0, atol=2e-3, msg=name)  # a step is as long; 20 were done


class Endless:
    """The same batches in each epoch."""

    epoch = 0

    def __init__(self, batches: list[BlockBatch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[BlockBatch]:
        return iter(self.batches)

    def state_dict(self) -> dict[str, int]:
        return {}


class Poisoned(Guess):
    """The third loss is not a number."""

    def __init__(self) -> None:
        self.count = 0

    def loss(self, model: nn.Module, batch: object, carry: Carry | None) -> Loss:
        self.count += 1
        found = super().loss(model, batch, carry)  # type: ignore[arg-type]
        return Loss(found.total * (math.nan if self.count == 3 else 1.0))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_step_that_is_not_finite_moves_no_weight(kind: str) -> None:
    """The weights are moved before anybody has looked; the device itself must leave them alone."""
    plan = recipe(optimiser={"kind": kind}, train={"nonfinite": "stop"})
    base = little(plan)
    loop = Loop(PreparedTask(base.recipe, base.model, Poisoned(), base.train, None), 5, GPU)
    with pytest.raises(TrainingError, match="Step 3 has a loss of nan"):
        loop.run()
    stopped = {name: tensor.clone() for name, tensor in weights_of(base.model).items()}
    fine = little(plan)
    Loop(PreparedTask(fine.recipe, fine.model, Guess(), fine.train, None), 2, GPU).run()
    for name, tensor in weights_of(fine.model).items():
        torch.testing.assert_close(stopped[name], tensor, rtol=0, atol=1e-6)  # a step is a thousand times that


def test_a_skipped_step_is_left_out_on_a_gpu_too() -> None:
    plan = recipe(train={"nonfinite": "skip"})
    base = little(plan)
    loop = Loop(PreparedTask(base.recipe, base.model, Poisoned(), base.train, None), 5, GPU)
    assert loop.run().skipped == 1
    assert all(tensor.isfinite().all() for tensor in weights_of(base.model).values())
