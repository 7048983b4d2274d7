"""Backward passes: which call of Python began one, and from which tensors."""

import sys
from types import FrameType
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"

# As torch has them: sampling.py puts a function before the first.
_CODES = {torch.autograd.backward.__code__: False, torch.autograd.grad.__code__: True}


class Start(NamedTuple):
    """A call of backward() or grad() that Python made."""

    frame: FrameType
    is_grad: bool
    nested: bool

    def roots(self) -> List[torch.Tensor]:
        roots = self.frame.f_locals.get("outputs" if self.is_grad else "tensors")
        listed = (roots,) if isinstance(roots, torch.Tensor) else roots if isinstance(roots, (list, tuple)) else ()
        return [root for root in listed if isinstance(root, torch.Tensor)]


def leaves_below(roots: Iterable[torch.Tensor]) -> Iterator[Any]:
    """The tensors into which a backward pass from the roots adds gradients; None for those that PyTorch does not show."""
    pending = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(pending)
    while pending:
        for below, _ in pending.pop().next_functions:
            if below is None or below in seen:
                continue
            seen.add(below)
            if below.name() == ACCUMULATE_GRAD:
                yield getattr(below, "variable", None)
            else:
                pending.append(below)


def find_start() -> Optional[Start]:
    """The innermost call of torch.autograd.backward or grad on the stack."""
    found: Optional[Tuple[FrameType, bool]] = None
    nested = False
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _CODES:
            if found is not None:
                nested = True
                break
            found = (frame, _CODES[frame.f_code])
        frame = frame.f_back
    return None if found is None else Start(*found, nested)


def is_starting_gradient() -> bool:
    """Whether autograd makes the gradient that a backward pass begins with."""
    frame: Optional[FrameType] = sys._getframe(1)
    for _ in range(16):
        if frame is None:
            return False
        if frame.f_code is torch.autograd._make_grads.__code__:
            return True
        frame = frame.f_back
    return False
