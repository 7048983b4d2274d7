"""Models and optimizers that a program gives to be recorded, each perhaps in wrappers."""

from typing import Any, List, Set, Tuple

import torch


def named_models(model: Any) -> List[Tuple[str, torch.nn.Module]]:
    """The models given, each with what its names begin with."""
    if isinstance(model, dict):
        given = [(str(name), each) for name, each in model.items()]
    elif isinstance(model, (list, tuple)):
        given = [(str(index), each) for index, each in enumerate(model)]
    else:
        given = [("", model)]
    if not given:
        raise ValueError(f"model is an empty {type(model).__name__}")
    for _, each in given:
        if not isinstance(each, torch.nn.Module):
            raise TypeError(f"model is no torch.nn.Module, and no list or dict of them: {type(each).__name__}")
    return given


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The module, where torch.compile made the model from one."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, torch.nn.Module) else model


def bare(optimizer: Any) -> Any:
    """The optimizer in wrappers, as of Accelerate, which may be an Optimizer themselves."""
    seen: Set[int] = set()
    while id(optimizer) not in seen:  # a wrapper may name itself
        seen.add(id(optimizer))
        inner = getattr(optimizer, "optimizer", None)
        if hasattr(inner, "param_groups"):
            optimizer = inner
    return optimizer


def listed_optimizers(given: Any) -> List[Any]:
    """The optimizers given, without wrappers."""
    if given is None:
        return []
    optimizers = [bare(each) for each in (given if isinstance(given, (list, tuple)) else [given])]
    for each in optimizers:
        if not hasattr(each, "param_groups"):
            raise TypeError(f"optimizer has no param_groups: {type(each).__name__}")
    return optimizers
