"""Gradient scalers: which of their methods runs just now. Subclasses have methods of their own, in files of theirs."""

import sys
from types import FrameType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch

SCALES = ("scale", "apply_scale")
CHECKS = "_check_inf_per_device"  # looks for overflows without unscaling, for an optimizer that unscales in its step
_METHODS = (*SCALES, CHECKS, "unscale_", "_unscale_grads_", "step", "_maybe_opt_step", "update")


class Running(NamedTuple):
    """A call of a scaler's method that has not returned."""

    scaler: Any
    method: str
    frame: FrameType

    @property
    def optimizer(self) -> Any:
        """The optimizer that the method was called with, or None."""
        code = self.frame.f_code
        given = self.frame.f_locals.get(code.co_varnames[1]) if code.co_argcount > 1 else None
        return given if hasattr(given, "param_groups") else None


def running(known: Any, frames: int = sys.maxsize) -> Iterator[Running]:
    """Calls of scalers on the stack, the innermost first, in so many frames. `known` is one whatever its class is."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frames > 0:
        method = frame.f_code.co_name
        if method in _METHODS:  # first, since it costs less
            this = frame.f_locals.get("self")
            if this is not None and (this is known or issubclass(type(this), torch.amp.GradScaler)):
                yield Running(this, method, frame)
        frame, frames = frame.f_back, frames - 1


def classes(known: Any) -> List[type]:
    """The classes of scalers that have methods: those there are of PyTorch's own, and of `known`."""
    found: Dict[type, None] = {torch.amp.GradScaler: None}
    pending: List[type] = [torch.amp.GradScaler]
    while pending:
        below: List[type] = pending.pop().__subclasses__()
        pending += [each for each in below if each not in found]
        found.update(dict.fromkeys(below))
    if known is not None:
        found.update(dict.fromkeys(type(known).__mro__[:-1]))
    return list(found)


def left_out(scaler: Any, stepped: Any) -> List[int]:
    """The ids of optimizers whose step the scaler left out: it was asked for, and is none of those that were taken."""
    states = getattr(scaler, "_per_optimizer_states", {})
    return [key for key, state in states.items() if getattr(state.get("stage"), "name", "") == "STEPPED" and key not in stepped]
