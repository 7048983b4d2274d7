"""Tensors that the program hands in, since it alone sees them."""

import math
from typing import Any, Set

import torch

from .guard import warn
from .record import recordings_of_this_thread

_said: Set[str] = set()


def observe(name: Any, tensor: Any, scale: Any) -> None:
    """Records the tensor in the recordings that go on in this thread. Raises nothing."""
    recordings = recordings_of_this_thread()
    if not recordings:
        return
    wrong = _wrong(name, tensor, scale)
    if wrong:
        _say_once(f"ulpscope.observe recorded nothing: {wrong}")
        return
    for recording in recordings:
        recording._observe(name, tensor, float(scale))


def _wrong(name: Any, tensor: Any, scale: Any) -> str:
    """Why that cannot be recorded, or an empty text."""
    if not isinstance(name, str) or not name:
        return f"the name is no text: {name!r}"
    if not isinstance(tensor, torch.Tensor):
        return f"{name} is no tensor: {type(tensor).__name__}"
    if not tensor.is_floating_point():
        return f"{name} is of {tensor.dtype}; expected a floating-point type"
    try:
        number = float(scale)
    except (TypeError, ValueError, RuntimeError):
        return f"the scale of {name} is no number: {type(scale).__name__}"
    return "" if math.isfinite(number) and number > 0 else f"the scale of {name} is {number:g}; expected a number above 0"


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warn(text)
