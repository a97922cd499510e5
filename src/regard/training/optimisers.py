"""Optimisers: AdamW (learning rate, betas, eps) or SGD with weight decay, the section [optimiser]; their state for
checkpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim

from regard.training.section import Fraction, Positive, RecipeSection


class AdamW(RecipeSection):
    kind: Literal["adamw"] = "adamw"
    learning_rate: Positive = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


class SGD(RecipeSection):
    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Fraction = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


def make_optimiser(section: AdamW | SGD, model: nn.Module) -> optim.Optimizer:
    """The optimiser of a recipe, with fused kernels where there are some.

    Weight decay applies to matrices, not to vectors (biases, scales of norms).
    """
    groups = _parameter_groups(model, section.weight_decay)
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in model.parameters())
    match section:
        case AdamW():
            return optim.AdamW(groups, section.learning_rate, section.betas, section.eps, fused=fused)
        case SGD():
            return optim.SGD(groups, section.learning_rate, section.momentum, nesterov=section.nesterov, fused=fused)


def _parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def set_learning_rate(optimizer: optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def state_tensors(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state tensors, such as exp_avg.NAME; scalars are left to `state_scalars`."""
    return {
        f"{key}.{name}": value
        for name, state in _parameter_states(optimizer, model).items()
        for key, value in state.items()
        if isinstance(value, Tensor) and value.dim()
    }


def state_scalars(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, dict[str, float | str | None]]:
    """The optimiser's other state: scalars as they are, "tensor" where `tensors` has a tensor."""
    return {
        name: {
            key: None if value is None else "tensor" if isinstance(value, Tensor) and value.dim() else float(value)
            for key, value in state.items()
        }
        for name, state in _parameter_states(optimizer, model).items()
    }


def empty_state_tensors(scalars: dict[str, dict[str, Any]], model: nn.Module) -> dict[str, Tensor]:
    """Empty tensors, or shards, in the shapes of `tensors`, to be filled from a checkpoint."""
    parameters = dict(model.named_parameters())
    return {
        f"{key}.{name}": torch.zeros_like(parameters[name]).detach()
        for name, state in scalars.items()
        for key, value in state.items()
        if value == "tensor"
    }


def restore(
    optimizer: optim.Optimizer, model: nn.Module, scalars: dict[str, dict[str, Any]], tensors: dict[str, Tensor]
) -> None:
    """Load the state that `tensors` and `state_scalars` gave."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    states = {}
    for number, parameter in enumerate(one for group in optimizer.param_groups for one in group["params"]):
        name = names[parameter]
        if name in scalars:
            states[number] = {
                key: tensors[f"{key}.{name}"] if value == "tensor" else None if value is None else torch.tensor(value)
                for key, value in scalars[name].items()
            }
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})


def _parameter_states(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, dict[str, Any]]:
    return {name: optimizer.state[one] for name, one in model.named_parameters() if one in optimizer.state}
