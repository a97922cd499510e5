"""What moves the weights, from the recipe's section: AdamW or SGD, fused where the device has such a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, optim

from regard.training.recipe import SGD, AdamW


def optimiser(section: AdamW | SGD, model: nn.Module) -> optim.Optimizer:
    """Matrices decay, vectors (biases, the scales of norms) do not."""
    groups = _groups(model, section.decay)
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in model.parameters())
    match section:
        case AdamW():
            return optim.AdamW(groups, section.rate, section.betas, section.eps, fused=fused)
        case SGD():
            return optim.SGD(groups, section.rate, section.momentum, nesterov=section.nesterov, fused=fused)


def _groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def set_rate(optimizer: optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def tensors_of(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser remembers of each weight, such as exp_avg.NAME; scalars are left to `scalars_of`."""
    return {
        f"{key}.{name}": value
        for name, memory in _memories(optimizer, model).items()
        for key, value in memory.items()
        if isinstance(value, Tensor) and value.dim()
    }


def scalars_of(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, dict[str, float | str | None]]:
    """The rest: numbers as they are, and the names of the tensors, so that they can be asked for again."""
    return {
        name: {
            key: None if value is None else "tensor" if isinstance(value, Tensor) and value.dim() else float(value)
            for key, value in memory.items()
        }
        for name, memory in _memories(optimizer, model).items()
    }


def blank_tensors(scalars: dict[str, dict[str, Any]], model: nn.Module) -> dict[str, Tensor]:
    """Tensors, or shards of them, to be filled with what `tensors_of` gave."""
    parameters = dict(model.named_parameters())
    return {
        f"{key}.{name}": torch.zeros_like(parameters[name]).detach()
        for name, memory in scalars.items()
        for key, value in memory.items()
        if value == "tensor"
    }


def restore(
    optimizer: optim.Optimizer, model: nn.Module, scalars: dict[str, dict[str, Any]], tensors: dict[str, Tensor]
) -> None:
    """Remember again what was kept."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    memories = {}
    for number, parameter in enumerate(one for group in optimizer.param_groups for one in group["params"]):
        name = names[parameter]
        if name in scalars:
            memories[number] = {
                key: tensors[f"{key}.{name}"] if value == "tensor" else None if value is None else torch.tensor(value)
                for key, value in scalars[name].items()
            }
    optimizer.load_state_dict({"state": memories, "param_groups": optimizer.state_dict()["param_groups"]})


def _memories(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, dict[str, Any]]:
    return {name: optimizer.state[one] for name, one in model.named_parameters() if one in optimizer.state}
