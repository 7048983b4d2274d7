"""Updates of parameters: what an optimizer's step asked for, and what became of it."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch


class Copy(NamedTuple):
    """A parameter as it was before an optimizer's step."""

    parameter: torch.Tensor
    group: Dict[str, Any]
    before: torch.Tensor
    gradient: Optional[torch.Tensor]


def number(value: Any) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)


def parameters_of(optimizer: Any) -> List[Tuple[torch.Tensor, Dict[str, Any]]]:
    """The parameters that an optimizer has, each with its group."""
    return [(parameter, group) for group in optimizer.param_groups for parameter in group["params"]]


def copies_before(optimizer: Any, has_closure: bool) -> List[Copy]:
    """Copies of what a step reads; with a closure the gradients come later."""
    copies = []
    for parameter, group in parameters_of(optimizer):
        gradient = parameter.grad
        if gradient is None and not has_closure:
            continue
        if parameter.layout is not torch.strided or (gradient is not None and gradient.layout is not torch.strided):
            continue
        copies.append(Copy(parameter, group, parameter.detach().clone(),
                           None if has_closure or gradient is None else gradient.detach().clone()))
    return copies


def function_of(optimizer: Any) -> str:
    """The function that a trace has for an optimizer's update."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        return "adam_update"
    return "sgd_update" if type(optimizer) is torch.optim.SGD else "assign"


def states_of(optimizer: Any, parameter: torch.Tensor) -> List[Tuple[str, torch.Tensor]]:
    """The states that an optimizer keeps of a parameter, by name: tensors of its shape."""
    state = optimizer.state.get(parameter, {})
    return [(str(name), value) for name, value in state.items()
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape and name != "step"]


def asked_for(optimizer: Any, copy: Copy, gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """The update by the optimizer's rule, computed in FP64 from the states that the step left; None: not known."""
    group, state = copy.group, optimizer.state.get(copy.parameter, {})
    rate, decay = number(group["lr"]), number(group.get("weight_decay", 0))
    weight = copy.before.double()
    function = function_of(optimizer)
    if function == "sgd_update" and gradient is not None:
        step = -gradient.double() if group.get("maximize") else gradient.double()
        if decay:
            step = step + decay * weight
        momentum, buffer = number(group.get("momentum", 0)), state.get("momentum_buffer")
        if momentum:
            if buffer is None:
                return None
            step = step + momentum * buffer.double() if group.get("nesterov") else buffer.double()
        return -rate * step
    if function == "adam_update":
        first, second, count = state.get("exp_avg"), state.get("exp_avg_sq"), state.get("step")
        if first is None or second is None or count is None:
            return None
        if group.get("amsgrad"):
            second = state["max_exp_avg_sq"]
        taken = number(count)
        first_share, second_share = (number(beta) for beta in group["betas"])
        mean = first.double() / (1 - first_share**taken)
        root = (second.double() / (1 - second_share**taken)).sqrt()
        step = mean / (root + number(group["eps"]))
        if decay and (group.get("decoupled_weight_decay") or type(optimizer) is torch.optim.AdamW):
            step = step + decay * weight
        return -rate * step
    return None


def squares(tensors: List[torch.Tensor]) -> List[float]:
    """The squares of the Euclidean norms, in FP64."""
    return [float(tensor.detach().double().square().sum().item()) for tensor in tensors]


def settings_of(optimizer: Any) -> List[Tuple[str, str, str]]:
    """Name, value and kind of an optimizer's settings, from its first group."""
    group = optimizer.param_groups[0]
    settings = [("optimizer", type(optimizer).__name__, "optimizer")]
    kinds = {"lr": "learning_rate", "weight_decay": "weight_decay", "eps": "epsilon", "momentum": "momentum"}
    for name, kind in kinds.items():
        if name in group:
            settings.append((name, f"{number(group[name]):g}", kind))
    if "betas" in group:
        for index, kind in enumerate(("momentum", "second_moment")):
            settings.append((f"betas[{index}]", f"{number(group['betas'][index]):g}", kind))
    return settings
