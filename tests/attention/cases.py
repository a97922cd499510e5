"""What the laws of attention are tested on: requests of every shape, score, mask, bias and window."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from hypothesis import settings, strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention import Attended, DenseBias, Observe, attend, choose, masks, scores, windows
from regard.attention.attend import BACKENDS
from regard.attention.masks import Grid, Mask
from regard.attention.normalise import Entmax, Normaliser, Sink, Sparsemax

torch.set_num_threads(1)  # these maps are small: a second thread costs more than it brings

# Triton's have tests and a device of their own; "recurrent" takes few masks, and is held to the laws by Request.able
HERE = [name for name in sorted(BACKENDS) if not name.startswith(("triton", "recurrent"))]
ALL = Observe(top=3, entropy=True, received=True, thumbnail=(3, 2), weights=True, prepared=True)
STATISTICS = Observe(top=3, entropy=True, received=True, thumbnail=(3, 2))

Lead = tuple[int, ...]

# The leading dimensions of q, k and v, and those of the result.
LEADS: list[tuple[Lead, Lead, Lead, Lead]] = [
    ((), (), (), ()),
    ((2,), (2,), (2,), (2,)),
    ((2, 2), (2, 2), (2, 2), (2, 2)),
    ((2, 4), (2, 2), (2, 2), (2, 4)),  # two query heads share a key head
    ((2, 4), (2, 1), (2, 1), (2, 4)),
    ((2, 4), (2, 2), (2, 4), (2, 4)),  # fewer key heads than value heads
    ((2, 1), (2, 3), (2, 3), (2, 3)),  # one query asks every head
    ((3,), (1,), (3,), (3,)),
    ((1,), (2,), (2,), (2,)),
    ((), (2,), (2,), (2,)),
    ((2,), (), (2,), (2,)),
    ((2, 4), (), (2, 4), (2, 4)),
    ((2, 4), (2,), (2,), (2, 4)),  # key heads without a batch
    ((2, 1, 4), (1, 3, 2), (2, 3, 2), (2, 3, 4)),
    ((2, 2, 1, 2), (1, 2, 2, 2), (2, 1, 2, 1), (2, 2, 2, 2)),
]


def share(percent: int) -> settings:
    """Hypothesis settings for this share of the profile's examples, so that the long profile sweeps longer here too."""
    return settings(max_examples=max(1, settings.default.max_examples * percent // 100))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True, repr=False)
class Request:
    """One call of `attend`: its tensors, its values, and the leading dimensions its result must have."""

    q: Tensor
    k: Tensor
    v: Tensor
    lead: Lead
    score: Any = None
    mask: Mask | None = None
    bias: Any = None
    window: Any = None
    normalise: Normaliser | None = None

    @property
    def T(self) -> int:
        return self.q.size(-2)

    @property
    def S(self) -> int:
        return self.k.size(-2)

    @property
    def grid(self) -> Grid:
        return Grid(self.lead, self.T, self.S, torch.device("cpu"))

    @property
    def values(self) -> dict[str, Any]:
        values = {"score": self.score, "mask": self.mask, "bias": self.bias, "window": self.window}
        return values | {"normalise": self.normalise}

    def __call__(self, backend: str = "plain", observe: Observe | None = None, dropout: float = 0.0) -> Attended:
        return attend(self.q, self.k, self.v, **self.values, backend=backend, observe=observe, dropout=dropout)

    def able(self, dropout: float = 0.0) -> list[str]:
        """The backends that serve this request."""
        unsupported = choose(self.q, self.k, self.v, **self.values, dropout=dropout).unsupported
        return [name for name in BACKENDS if name not in unsupported]

    def with_(self, **changes: Any) -> Request:
        return replace(self, **changes)

    def to(self, dtype: torch.dtype) -> Request:
        """The same in another precision, sharing nothing with this one."""
        q, k, v = (x.detach().to(dtype, copy=True) for x in (self.q, self.k, self.v))
        score, bias, window = deepcopy((self.score, self.bias, self.window))
        score = score.to(dtype) if isinstance(score, nn.Module) else score
        window = window.to(dtype) if isinstance(window, nn.Module) else window
        bias = bias.to(dtype) if isinstance(bias, nn.Module) else bias
        bias = DenseBias(bias.table.detach().to(dtype)) if isinstance(bias, DenseBias) else bias
        sunk = isinstance(self.normalise, Sink)
        normalise = Sink(self.normalise.logits.detach().to(dtype)) if sunk else self.normalise
        return replace(self, q=q, k=k, v=v, score=score, bias=bias, window=window, normalise=normalise)

    def learning(self, bias: bool = True) -> dict[str, Tensor]:
        """All that can learn, by name, each now requiring a gradient."""
        leaves = {"q": self.q, "k": self.k, "v": self.v}
        for name, part in (("score", self.score), ("bias", self.bias), ("window", self.window)):
            if isinstance(part, nn.Module):
                leaves |= {f"{name}.{own}": parameter for own, parameter in part.named_parameters()}
        if isinstance(self.bias, DenseBias):
            leaves["bias.table"] = self.bias.table
        if isinstance(self.normalise, Sink):
            leaves["sink"] = self.normalise.logits
        for name, leaf in leaves.items():
            leaf.requires_grad_(bias or not name.startswith("bias"))
        return {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", self.q), ("k", self.k), ("v", self.v)))
        asked = ", ".join(f"{name}={value!r}" for name, value in self.values.items() if value is not None)
        return f"Request({shapes}, {self.q.dtype}, {asked})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # so that Hypothesis shows shapes, not numbers


def fields(got: Attended) -> dict[str, Tensor]:
    """Every tensor that came back, by name."""
    found = {"output": got.output, "lse": got.lse, "entropy": got.entropy, "received": got.received}
    found |= {"thumbnail": got.thumbnail, "weights": got.weights, "sink": got.sink}
    if got.top is not None:
        found |= {"top.values": got.top.values, "top.indices": got.top.indices}
    return {name: x for name, x in found.items() if x is not None}


def loss(got: Attended, *, seed: int = 0) -> Tensor:
    """A sum over output and the finite part of lse (and weights, if they came) that weighs every number differently."""
    source = seeded(seed)
    parts = [x for x in (got.output, got.lse, got.weights) if x is not None]
    total = torch.zeros((), dtype=got.lse.dtype)
    for x in parts:
        factors = torch.randn(x.shape, generator=source, dtype=torch.float64).to(got.lse.dtype)
        total = total + (torch.where(x.isfinite(), x, 0.0).to(got.lse.dtype) * factors).sum()
    return total


def gradients(
    request: Request, backend: str, observe: Observe | None = None, *, bias: bool = True
) -> dict[str, Tensor]:
    """What every learning leaf of the request is told by `loss`; nothing told is zeros."""
    leaves = request.learning(bias)
    found = torch.autograd.grad(loss(request(backend, observe)), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }


def tolerance(dtype: torch.dtype) -> float:
    """How far two orders of computing the same numbers of size 1 may lie apart: some ulp of the inputs' precision."""
    return {torch.float64: 1e-11, torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]


def assert_same(got: Tensor, want: Tensor, dtype: torch.dtype, name: str = "") -> None:
    """Equal but for rounding, -inf in the same places, and the same shape."""
    bound, got, want = tolerance(dtype), got.detach(), want.detach()
    assert got.shape == want.shape, f"{name}: {tuple(got.shape)}, not {tuple(want.shape)}"
    scale = max(1.0, float(want[want.isfinite()].abs().max())) if want.isfinite().any() else 1.0
    torch.testing.assert_close(
        got.double(), want.double(), rtol=bound, atol=bound * scale, msg=lambda text: f"{name}: {text}"
    )


class Largest(TorchDispatchMode):
    """Watches every operator and keeps the size of the largest tensor that any of them gave back."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                own = x.untyped_storage().nbytes() // x.element_size()  # an expanded view holds no more than this
                self.numel = max(self.numel, min(x.numel(), own))
        return result


def near(q: Tensor, k: Tensor) -> Tensor:
    """A user's own score: minus the squared distance."""
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)


class PerHead(nn.Module):
    """A user's own score with a parameter for each leading index, which must therefore see all of them at once."""

    def __init__(self, lead: Lead) -> None:
        super().__init__()
        self.heat = nn.Parameter(torch.linspace(0.5, 1.5, max(1, torch.Size(lead).numel())).reshape(*lead, 1, 1))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.heat.to(q.dtype) * (q @ k.mT)


class Slope(nn.Module):
    """A user's own bias, which knows nothing but how to give a tile: ALiBi with a learned slope for each head."""

    def __init__(self, lead: Lead) -> None:
        super().__init__()
        heads = lead[-1] if lead else 1
        self.slope = nn.Parameter(torch.linspace(0.1, 0.4, heads).reshape(*((heads, 1, 1) if lead else (1, 1))))

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return -self.slope * (rows[:, None] - cols).abs()


# name -> (score for queries of width D and keys of width Dk, result lead) and by how much Dk exceeds D
SCORES: dict[str, tuple[Callable[[int, int, Lead], Any], int]] = {
    "default": (lambda D, Dk, lead: None, 0),
    "ScaledDot": (lambda D, Dk, lead: scores.ScaledDot(), 0),
    "hot": (lambda D, Dk, lead: scores.ScaledDot(scale=0.1), 0),
    "capped": (lambda D, Dk, lead: scores.ScaledDot(cap=1.5), 0),
    "Dot": (lambda D, Dk, lead: scores.Dot(), 0),
    "Cosine": (lambda D, Dk, lead: scores.Cosine(temperature=0.3), 0),
    "Bilinear": (lambda D, Dk, lead: scores.Bilinear(D, Dk), 1),
    "Additive": (lambda D, Dk, lead: scores.Additive(D, 3, Dk), 2),
    "Location": (lambda D, Dk, lead: windows.Location(D, 12), 0),
    "callable": (lambda D, Dk, lead: near, 0),
    "PerHead": (lambda D, Dk, lead: PerHead(lead), 0),
    "Match": (lambda D, Dk, lead: scores.Match(), 0),
}
CONTENT = [name for name in SCORES if name not in ("Location", "Match", "PerHead")]  # those that only see contents


def subshape(draw: st.DrawFn, full: tuple[int, ...], keep: int = 2) -> tuple[int, ...]:
    """A shape that broadcasts to this one: ones for some sizes, some leading dimensions dropped."""
    sizes = [draw(st.sampled_from([size, 1])) for size in full]
    return tuple(sizes[draw(st.integers(0, len(full) - keep)) :])


@cache
@st.composite
def offsets(draw: st.DrawFn, lead: Lead, T: int, S: int) -> int | Tensor | None:
    here = st.integers(-T - 1, S + 1)
    kinds = [st.none(), here, here.map(torch.tensor)]
    if lead:
        kinds.append(st.lists(here, min_size=lead[0], max_size=lead[0]).map(torch.tensor))
    return draw(st.one_of(kinds))


@cache
@st.composite
def simple_masks(draw: st.DrawFn, lead: Lead, T: int, S: int) -> Mask:
    """One mask of any class that fits a map (*lead, T, S)."""
    kinds = ["Everything", "Causal", "Past", "Window", "Dense", "Documents", *(["Padding"] if lead else [])]
    kinds += ["Keys", "Blocks"] if S else []
    kind = draw(st.sampled_from(kinds))
    source = seeded(draw(st.integers(0, 99)))
    if kind == "Everything":
        return masks.Everything()
    if kind in ("Causal", "Past"):
        return getattr(masks, kind)(draw(offsets(lead, T, S)))
    if kind == "Window":
        left = draw(st.none() | st.integers(-1, 3))
        right = draw(st.none() | st.integers(-1 if left is None else -left, 3))
        return masks.Window(left, right, draw(offsets(lead, T, S)))
    if kind == "Dense":
        shape = subshape(draw, (*lead, T, S))
        return masks.Dense(torch.rand(shape, generator=source) < draw(st.sampled_from([0.6, 0.3, 0.9])))
    if kind == "Documents":
        batch = lead[:1] if draw(st.booleans()) else ()
        ids = torch.randint(3, (*batch, S), generator=source)
        own = T > S or draw(st.booleans())
        return masks.Documents(ids, torch.randint(3, (*batch, T), generator=source) if own else None)
    if kind in ("Keys", "Blocks"):
        size, count = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        chosen = torch.randint(
            -1, S if kind == "Keys" else -(-S // size), (*subshape(draw, (*lead, T), keep=1), count), generator=source
        )
        return masks.Keys(chosen) if kind == "Keys" else masks.Blocks(chosen, size)
    lengths = torch.randint(S + 1, (lead[0],), generator=source).to(draw(st.sampled_from([torch.int64, torch.int32])))
    queries = torch.randint(T + 1, (lead[0],), generator=source) if draw(st.booleans()) else None
    return masks.Padding(lengths, queries, draw(st.sampled_from(["right", "left"])))


@cache
def any_masks(lead: Lead, T: int, S: int) -> st.SearchStrategy[Mask]:
    """Masks of every class, and what & | ~ make of them."""
    return st.recursive(
        simple_masks(lead, T, S),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=3,
    )


@cache
@st.composite
def any_biases(draw: st.DrawFn, lead: Lead, T: int, S: int, hides: bool = True) -> Any:
    kind = draw(st.sampled_from(["none", "dense", "own", *(["hiding"] if hides else [])]))
    if kind == "none":
        return None
    if kind == "own":
        return Slope(lead).requires_grad_(False)  # a fused kernel refuses a bias that learns
    source = seeded(draw(st.integers(0, 99)))
    table = torch.randn(subshape(draw, (*lead, T, S)), generator=source)
    if kind == "hiding":
        table = table.masked_fill(torch.rand(table.shape, generator=source) < 0.3, -torch.inf)
    return DenseBias(table)


@cache
@st.composite
def any_windows(draw: st.DrawFn, lead: Lead, T: int, S: int, D: int) -> Any:
    kind = draw(st.sampled_from(["none", "none", "LocalM", "LocalP"]))
    half_width = draw(st.integers(1, 3))
    if kind == "LocalM":
        return windows.LocalM(half_width, draw(st.just(0) | offsets(lead, T, S)))
    return windows.LocalP(D, half_width, draw(st.sampled_from([None, 3]))) if kind == "LocalP" else None


@cache
@st.composite
def any_normalisers(draw: st.DrawFn, lead: Lead) -> Normaliser | None:
    kind = draw(st.sampled_from(["softmax", "softmax", "sink", "sparsemax", "entmax", "bisection"]))
    if kind == "sink":
        return Sink(2 * torch.randn(subshape(draw, lead, keep=0), generator=seeded(draw(st.integers(0, 99)))))
    return {"softmax": None, "sparsemax": Sparsemax(), "entmax": Entmax(1.5), "bisection": Entmax(1.3)}[kind]


@cache
def size() -> st.SearchStrategy[int]:
    return st.sampled_from([3, 5, 1, 2, 7, 4])


@cache
def size_or_none() -> st.SearchStrategy[int]:
    return st.sampled_from([3, 5, 1, 2, 7, 4, 0])


@st.composite
def requests(
    draw: st.DrawFn,
    dtypes: tuple[torch.dtype, ...] = (torch.float32,),
    names: list[str] | None = None,
    biased: bool = True,
    hiding_bias: bool = True,
    windowed: bool = True,
    normalised: bool = True,
    lengths: Callable[[], st.SearchStrategy[int]] = size_or_none,
    leads: list[tuple[Lead, Lead, Lead, Lead]] = LEADS,
) -> Request:
    """A request of any shape and kind; `names`: of these scores alone."""
    q_lead, k_lead, v_lead, lead = draw(st.sampled_from(leads))
    T, S = draw(lengths()), draw(lengths())
    D = draw(st.sampled_from([4, 2, 1]))
    name = draw(st.sampled_from(list(SCORES) if names is None else names))
    build, wider = SCORES[name]
    Dv = draw(st.sampled_from([D + wider, 3]))
    with torch.random.fork_rng():
        torch.manual_seed(draw(st.integers(0, 2**16)))
        q, k, v = torch.randn(*q_lead, T, D), torch.randn(*k_lead, S, D + wider), torch.randn(*v_lead, S, Dv)
        if name == "Match":
            q, k = q.round().clamp(-1, 1), k.round().clamp(-1, 1)
        score = build(D, D + wider, lead)
        mask = draw(st.none() | any_masks(lead, T, S))
        bias = draw(any_biases(lead, T, S, hiding_bias)) if biased else None
        window = draw(any_windows(lead, T, S, D)) if windowed else None
        normalise = None if isinstance(window, windows.LocalP) or not normalised else draw(any_normalisers(lead))
    return Request(q, k, v, lead, score, mask, bias, window, normalise).to(draw(st.sampled_from(dtypes)))


def fold(seen: Tensor, own: Lead) -> Tensor:
    """Booleans (*lead, n) gathered for a tensor with its own leading dimensions: true where any of its readers is."""
    lead = tuple(seen.shape[:-1])
    for dim, (mine, full) in enumerate(zip((1,) * (len(lead) - len(own)) + own, lead, strict=True)):
        if mine != full:
            seen = seen.unflatten(dim, (mine, full // mine)).any(dim + 1)
    return seen.reshape(*own, seen.size(-1))
