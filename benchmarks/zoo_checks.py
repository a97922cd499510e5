"""One architecture under attn_implementation="regard" beside eager: outputs, gradients, weights of every layer,
padding, later tokens, generation; what came of it as one verdict.

    RIGHT       outputs, gradients and every weight that eager reports are equal; all attention was heard
    PARTLY      outputs equal; some attention modules were not heard, and `heard.unheard` names them
    UNHEARD     outputs equal; no attention was heard, and it is named
    NONE        the model computes no softmax attention
    REFUSED     an error in a sentence
    WRONG       numbers differ, or attention went unheard without a word
    LOUD        an error that is no sentence
    NOT BUILT   the model could not be built or run here, in eager either (a package is missing, or a size does not fit)
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from zoo_inputs import input_plans
from zoo_models import config_of, made_lively, model_classes

from regard import Observe, capture, hub
from regard.errors import RegardError

RIGHT, PARTLY, UNHEARD, NONE = "right", "heard in part", "unheard", "no softmax attention"
REFUSED, WRONG, LOUD, NOT_BUILT = "refused", "wrong", "loud", "not built"
TOLERANCE = 2e-4  # of the largest number of a tensor: float32 through two layers of lively weights
NEW_TOKENS = 4
GENERATION: dict[str, dict[str, Any]] = {
    "generation": {},
    "beams": {"num_beams": 2},
    "static cache": {"cache_implementation": "static"},
    "generation padded left": {},
}


@dataclass
class Found:
    """What came of one class. `checked` lists the comparisons that were made, `why` says what a verdict rests on."""

    kind: str
    name: str
    verdict: str = RIGHT
    why: str = ""
    beside: str = (
        "eager"  # what it equals: "float64", where float32 differs by rounding; "default", where eager adds booleans
    )
    checked: list[str] = field(default_factory=list)
    heard: int = 0
    unheard: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Differs(Exception):
    """Two results that should be equal are not."""


def check_kind(kind: str) -> list[Found]:
    """Check the classes of one model type."""
    try:
        classes = model_classes(kind)
    except Exception as error:
        return [Found(kind, "", NOT_BUILT, _sentence(error))]
    if not classes:
        return [Found(kind, "", NOT_BUILT, "no model class")]
    return [check_class(kind, one) for one in classes]


def check_class(kind: str, model_class: Any) -> Found:
    found = Found(kind, model_class.__name__)
    try:
        eager, inputs = _eager(kind, model_class)
    except Exception as error:
        found.verdict, found.why = NOT_BUILT, _sentence(error)
        return found
    try:
        _compare_with_references(found, kind, eager, inputs)
    except Differs as difference:
        found.verdict, found.why = WRONG, str(difference)
    except RegardError as error:
        found.verdict, found.why = REFUSED, str(error)
    except Exception as error:
        found.verdict, found.why = LOUD, _sentence(error)
    return found


def _eager(kind: str, model_class: Any) -> tuple[Any, dict[str, Any]]:
    """The model with eager attention, and inputs that it runs with."""
    eager = model_class._from_config(config_of(kind, model_class), attn_implementation="eager").eval()
    made_lively(eager)
    failed: list[Exception] = []
    for inputs in input_plans(eager, eager.config):
        try:
            expected = _run(eager, inputs)
        except Exception as error:
            failed.append(error)
            continue
        if all(bool(one.isfinite().any()) for one in expected.values() if one.is_floating_point() and one.numel()):
            return eager, inputs
        failed.append(ValueError("nothing of its output is finite"))
    raise failed[0] if failed else ValueError("no inputs are known for it")


def _twin(kind: str, eager: Any, implementation: str | None) -> Any:
    """The same model with another attention implementation; None is what transformers chooses."""
    chosen = {} if implementation is None else {"attn_implementation": implementation}
    twin = type(eager)._from_config(config_of(kind, type(eager)), **chosen).eval()
    twin.load_state_dict(eager.state_dict())
    return twin


def _compare_with_references(found: Found, kind: str, eager: Any, inputs: dict[str, Any]) -> None:
    """Compare with eager in float32; if that differs, with eager in float64, where rounding is no reason any more (the
    order of near ties, norms of almost constant rows); then with what transformers chooses by default, since some
    models hand eager attention boolean masks, which it adds."""
    ours = _twin(kind, eager, hub.NAME)
    try:
        return _compare(found, ours, eager, inputs)
    except Differs as difference:
        first = difference
    for beside, dtype in (("float64", torch.float64), ("default", torch.float64), ("default", torch.float32)):
        found.checked, found.beside = [], beside
        given = {name: one.to(dtype) if one.is_floating_point() else one for name, one in inputs.items()}
        try:
            reference = eager if beside == "float64" else _twin(kind, eager.float(), None)
            return _compare(found, ours.to(dtype), reference.to(dtype), given)
        except Exception:  # it does not run so, or differs there too: the first difference stands
            continue
    found.beside = "eager"
    raise first


def _compare(found: Found, ours: Any, eager: Any, inputs: dict[str, Any]) -> None:
    _expect_same(found, "outputs", _run(eager, inputs), _run(ours, inputs))
    heard, again = _hear(ours, inputs)
    _expect_same_bits(found, "outputs while listening", _run(ours, inputs), again)
    found.unheard, found.heard = dict(heard.unheard), sum(bool(heard.calls(place)) for place in heard)
    reported = _reported_weights(eager, inputs)
    _compare_weights(found, reported, heard)
    _compare_padded(found, eager, ours, inputs)
    _compare_later_tokens(found, ours, inputs)
    _compare_gradients(found, eager, ours, inputs)
    _compare_generation(found, eager, ours, inputs)
    if found.unheard:
        found.verdict = PARTLY if found.heard else UNHEARD
        found.why = ", ".join(sorted(set(found.unheard.values())))
    elif not found.heard:
        if reported or _softmaxes(eager, inputs):
            raise Differs("attention is computed, none of it was heard, and nothing said so")
        found.verdict = NONE


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def _run(model: Any, inputs: dict[str, Any], **more: Any) -> dict[str, Tensor]:
    """The tensors of a model's output by name."""
    _seed()
    with torch.no_grad():
        return dict(_tensors(model(**inputs, **more)))


def _tensors(value: Any, name: str = "output") -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif hasattr(value, "items"):
        for key, one in value.items():
            yield from _tensors(one, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _tensors(one, f"{name}.{number}")


def _hear(model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with capture(model, observe=Observe(weights=True, entropy=True)) as heard:
            output = _run(model, inputs)
    return heard, output


def _difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number; what is not finite must be so in both."""
    if a.shape != b.shape:
        return float("inf")
    if not a.is_floating_point():
        return float((a != b).any())
    a, b = a.double(), b.double()
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return float("inf")
    a, b = torch.nan_to_num(a, 0.0, 0.0, 0.0), torch.nan_to_num(b, 0.0, 0.0, 0.0)
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-3)) if a.numel() else 0.0


def _expect_same(
    found: Found, what: str, expected: dict[str, Tensor], got: dict[str, Tensor], tolerance: float = TOLERANCE
) -> None:
    for name, one in expected.items():
        if "attentions" in name or "past_key_values" in name:
            continue
        if name not in got:
            raise Differs(f"{what}: {name} is missing")
        if not (off := _difference(one, got[name])) <= tolerance:
            raise Differs(f"{what}: {name} is off by {off:.2g} of its largest number")
    found.checked.append(what)


def _expect_same_bits(found: Found, what: str, expected: dict[str, Tensor], got: dict[str, Tensor]) -> None:
    for name, one in expected.items():
        if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(got[name])):
            raise Differs(f"{what}: {name} is not the same bits")
    found.checked.append(what)


def _reported_weights(eager: Any, inputs: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """The maps of weights that the eager model itself returns."""
    try:
        output = _run(eager, inputs, output_attentions=True)
    except Exception:  # many models cannot
        return []
    maps = [(name, one) for name, one in output.items() if "attentions" in name and one.dim() >= 3]
    return [(name, one) for name, one in maps if one.is_floating_point() and _is_normalised(one)]


def _is_normalised(weights: Tensor) -> bool:
    """Whether these are weights: a few models return scores from before the softmax under that name."""
    return bool((weights >= 0).all() and (weights.sum(-1) < 1.001).all())


def _compare_weights(found: Found, reported: list[tuple[str, Tensor]], heard: Any) -> None:
    """Every map that eager reports is among those that were heard."""
    calls = [call for place in heard for call in heard.calls(place) if call.weights is not None]
    known = [call.weights for call in calls]
    # some scale what a learned sink leaves to one before they return it
    known += [call.weights / call.weights.sum(-1, keepdim=True) for call in calls if call.sink is not None]
    matched = 0
    for name, weights in reported:
        same = any(_same_map(weights, one) for one in known)
        matched += same
        if not same and not found.unheard:
            shapes = sorted({tuple(one.shape) for one in known})
            raise Differs(f"weights: {name} {tuple(weights.shape)} is none of those heard, {shapes}")
    if matched:
        found.checked.append(f"{matched} of {len(reported)} maps")


def _same_map(weights: Tensor, one: Tensor) -> bool:
    one = one.to(weights.dtype)
    if weights.shape != one.shape:
        if weights.dim() == 3 and one.dim() == 4 and weights.shape == (one.size(0) * one.size(1), *one.shape[2:]):
            one = one.flatten(0, 1)
        elif weights.dim() == 5 and weights.flatten(0, 1).shape == one.shape:  # of pairs of pictures
            weights = weights.flatten(0, 1)
        elif weights.dim() == one.dim() and weights.shape[:-1] == one.shape[:-1] and weights.size(-1) > one.size(-1):
            weights = weights[..., : one.size(-1)]
        elif weights.dim() == one.dim() and weights.size(-1) < one.size(-1):  # without the prompt before the text
            one = one[..., -weights.size(-2) :, -weights.size(-1) :]
        else:
            return False
    if weights.dim() == 4 and weights.shape == one.shape and torch.equal(weights, weights[:, :1].expand_as(weights)):
        one = one.mean(1, keepdim=True).expand_as(one)  # some return the mean of the heads as every head's
    return weights.shape == one.shape and torch.allclose(weights, one, atol=1e-4, rtol=1e-3)


def _compare_padded(found: Found, eager: Any, ours: Any, inputs: dict[str, Any]) -> None:
    """Texts of different lengths, padded on either side: real positions are equal."""
    ids = inputs.get("input_ids")
    if ids is None:
        return
    for side in ("right", "left"):
        mask = _padding(ids, side)
        given = inputs | {"attention_mask": mask}
        if (beside := inputs.get("decoder_attention_mask")) is not None and beside.size(1) > ids.size(1):
            given["decoder_attention_mask"] = torch.cat([mask, beside[:, ids.size(1) :]], 1)  # text before a canvas
        try:
            expected = _run(eager, given)
        except Exception:  # it takes no mask, or not this one
            continue
        got, real = _run(ours, given), mask.bool()
        for name, one in expected.items():
            if "past_key_values" in name or "attentions" in name or name not in got:
                continue
            if one.shape[:1] == ids.shape[:1] and one.dim() > 1 and 0 <= (more := one.size(1) - ids.size(1)) <= 1:
                kept = torch.nn.functional.pad(real, (0, more), value=True)  # a summary may stand at the end
                expected[name], got[name] = one[kept], got[name][kept]  # padded positions may hold anything
        _expect_same(found, f"padded {side}", expected, got)


def _padding(ids: Tensor, side: str) -> Tensor:
    """An attention mask that hides four tokens of the last text."""
    mask = torch.ones_like(ids)
    mask[-1, slice(-4, None) if side == "right" else slice(0, 4)] = 0
    return mask


def _compare_later_tokens(found: Found, ours: Any, inputs: dict[str, Any]) -> None:
    """A causal language model does not see later tokens."""
    ids = inputs.get("input_ids")
    if ids is None or "CausalLM" not in type(ours).__name__ or "decoder_input_ids" in inputs:
        return
    if getattr(ours.config, "is_decoder", True) is False and "RoBERTa" in type(ours).__name__:
        return
    changed = ids.clone()
    changed[:, -1] = 5 + (changed[:, -1] - 4) % 60
    before, after = _run(ours, inputs), _run(ours, inputs | {"input_ids": changed})
    logits = next((name for name in before if name.endswith("logits")), None)
    if logits is None or before[logits].size(1) != ids.size(1):
        return
    eagerly_causal = _difference(before[logits][:, :-1], after[logits][:, :-1]) <= TOLERANCE
    if not eagerly_causal and not _reads_both_ways(ours):
        raise Differs("a token sees a later one")
    found.checked.append("later tokens")


def _reads_both_ways(model: Any) -> bool:
    """BERT-like classes named CausalLM read both ways unless config.is_decoder; XLNet and kin permute."""
    return not getattr(model.config, "is_decoder", False)


def _compare_gradients(found: Found, eager: Any, ours: Any, inputs: dict[str, Any]) -> None:
    try:
        expected = _gradients(eager, inputs)
    except Exception:  # no gradient through this model in eager either
        return
    if not expected:
        return
    got = _gradients(ours, inputs)
    largest = max(float(one.abs().max()) for one in expected.values() if one.numel())
    if not np.isfinite(largest) or largest == 0:
        return
    for name, one in expected.items():
        if not one.numel():
            continue
        off = float((one - got[name]).abs().max()) / max(float(one.abs().max()), 1e-3 * largest)
        if not off <= 10 * TOLERANCE:
            raise Differs(f"gradients: {name} is off by {off:.2g} of its largest number")
    found.checked.append("gradients")


def _gradients(model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    _seed()
    outputs = [one for name, one in _tensors(model(**inputs)) if "attentions" not in name]  # a few always return those
    values = [one for one in outputs if one.requires_grad and one.is_floating_point()]
    if not values:
        return {}
    generator = torch.Generator().manual_seed(2)
    sum((one * torch.randn(one.shape, generator=generator)).sum() for one in values[:4]).backward()
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def _compare_generation(found: Found, eager: Any, ours: Any, inputs: dict[str, Any]) -> None:
    if not hasattr(eager, "can_generate") or not eager.can_generate():
        return
    given = {name: one for name, one in inputs.items() if not name.startswith("decoder_")}
    for what, how in GENERATION.items():
        how = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0, **how}
        if hasattr(getattr(eager, "generation_config", None), "max_denoising_steps"):
            how["max_denoising_steps"] = 2  # each feeds back the rounding of the one before
        if what == "generation padded left":
            if "input_ids" not in given:
                continue
            given = given | {"attention_mask": _padding(given["input_ids"], "left")}
        try:
            expected = _generated(eager, given, how)
        except Exception:  # it does not generate from these inputs in eager either
            continue
        if not torch.equal(expected, _generated(ours, given, how)):
            raise Differs(f"{what}: other tokens")
        found.checked.append(what)


def _generated(model: Any, inputs: dict[str, Any], how: dict[str, Any]) -> Tensor:
    _seed()
    said = model.generate(**inputs, **how)
    return said if isinstance(said, Tensor) else said.sequences


def _softmaxes(model: Any, inputs: dict[str, Any]) -> bool:
    """Whether the model computes a softmax over a square or wider map inside a module that is named attention."""
    from regard.attention.torch_hooks import is_attention

    inside: list[Any] = []
    found = False

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal found
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if inside and name in ("softmax", "scaled_dot_product_attention") and isinstance(result, Tensor):
                found = found or result.dim() >= 3
            return result

    hooks = []
    for module in model.modules():
        if is_attention(module):
            hooks.append(module.register_forward_pre_hook(lambda one, _: inside.append(one)))
            hooks.append(module.register_forward_hook(lambda *_: inside.pop() and None))
    try:
        with Watch():
            _run(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _sentence(error: Exception) -> str:
    """An error in a line: its type, what it says, and where it was raised."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:160]} ({at.filename.rpartition('/')[2]}:{at.lineno})"
