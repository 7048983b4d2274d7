"""Optimizers: their parameters, states and settings, and the rule by which they update."""

import math
from typing import Any, Dict, List, Optional, Tuple

import torch

from .tracker import ADAM, SGD, UNKNOWN_RULE, UpdateStruct


def number(value: Any) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)


def rate_of(group: Dict[str, Any]) -> Optional[float]:
    """The learning rate of a group; None: it has none, as where the optimizer finds one for itself in each step."""
    try:
        return number(group["lr"])
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None


def local(tensor: Any) -> Any:
    """The part of a tensor that this process has, where others have parts of it too (DTensor)."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


def parameters_of(optimizer: Any) -> List[Tuple[torch.Tensor, Dict[str, Any]]]:
    """The parameters that an optimizer has, each with its group."""
    return [(parameter, group) for group in optimizer.param_groups for parameter in group["params"]]


def rule_of(optimizer: Any) -> int:
    """The rule of an update that the library knows."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        return ADAM
    return SGD if type(optimizer) is torch.optim.SGD else UNKNOWN_RULE


def leaves_gradients(optimizer: Any) -> bool:
    """Whether a step leaves gradients as they were: not where a kernel unscales them, nor with Nesterov's momentum, which SGD adds to the
    gradients themselves where it goes over lists."""
    if getattr(optimizer, "grad_scale", None) is not None or rule_of(optimizer) == UNKNOWN_RULE:
        return False
    return not any(group.get("nesterov") for group in optimizer.param_groups)


def parameters_with_states(optimizer: Any, group: Dict[str, Any]) -> List[Tuple[Tuple[Any, ...], List[Any]]]:
    """The parameters of a group, those with states of the same names together: each, its gradient, and its states."""
    found: List[Tuple[Tuple[Any, ...], List[Any]]] = []
    names: Optional[Tuple[Any, ...]] = None
    tensors: List[Any] = []
    for parameter in group["params"]:
        state = optimizer.state.get(parameter) or {}
        if names != (own := tuple(state)):
            names, tensors = own, []
            found.append((own, tensors))
        tensors += (parameter, parameter.grad)
        tensors += state.values()
    return found


def describe_group(optimizer: Any, group: Dict[str, Any], update: UpdateStruct) -> None:
    """The numbers of the rule that a group's parameters have in common."""
    rate = rate_of(group)
    update.rule = UNKNOWN_RULE if rate is None else rule_of(optimizer)
    update.learning_rate = math.nan if rate is None else rate
    if update.rule == UNKNOWN_RULE:
        return
    update.weight_decay = number(group.get("weight_decay", 0))
    update.maximize = bool(group.get("maximize"))
    if update.rule == SGD:
        update.momentum, update.nesterov = number(group.get("momentum", 0)), bool(group.get("nesterov"))
        return
    update.first_decay, update.second_decay = (number(beta) for beta in group["betas"])
    update.epsilon = number(group["eps"])
    update.is_stepwise = not group.get("fused")
    update.decoupled = bool(group.get("decoupled_weight_decay")) or type(optimizer) is torch.optim.AdamW


def _settings_of_group(group: Dict[str, Any]) -> Dict[str, Tuple[str, str]]:
    """Value and kind of a group's settings, by name."""
    kinds = {"lr": "learning_rate", "weight_decay": "weight_decay", "eps": "epsilon", "momentum": "momentum"}
    settings = {name: (f"{number(group[name]):g}", kind) for name, kind in kinds.items()
                if isinstance(group.get(name), (int, float, torch.Tensor))}  # Adafactor has two numbers for eps
    # A schedule, as of a warm-up, changed it before the first step: what the program gives is the other one.
    if "lr" in settings and isinstance(group.get("initial_lr"), (int, float, torch.Tensor)):
        settings["lr"] = f"{number(group['initial_lr']):g}", kinds["lr"]
    if len(group.get("betas", ())) == 2:
        for index, kind in enumerate(("momentum", "second_moment")):
            settings[f"betas[{index}]"] = f"{number(group['betas'][index]):g}", kind
    return settings


def settings_of(optimizers: List[Any]) -> List[Tuple[str, str, str]]:
    """Name, value and kind of the optimizers' settings. One that all groups have alike has its name alone, others the Python that
    finds them: param_groups[1]["lr"]."""
    settings: List[Tuple[str, str, str]] = []
    groups: List[Tuple[str, Dict[str, Tuple[str, str]]]] = []
    for index, optimizer in enumerate(optimizers):
        name = "optimizer" if len(optimizers) == 1 else f"optimizers[{index}]"
        settings.append((name, type(optimizer).__name__, "optimizer"))
        of = "" if len(optimizers) == 1 else f"{name}."
        groups += [(f"{of}param_groups[{place}]", _settings_of_group(group)) for place, group in enumerate(optimizer.param_groups)]
    for name in dict.fromkeys(name for _, group in groups for name in group):
        found = [(place, group[name]) for place, group in groups if name in group]
        if len({setting for _, setting in found}) == 1:
            settings.append((name, *found[0][1]))
            continue
        key, bracket, rest = name.partition("[")
        settings += [(f'{place}["{key}"]{bracket}{rest}', *setting) for place, setting in found]
    return settings
