"""Records PyTorch training, op by op, and says what went wrong in it.

    with ulpscope.record("run.h5", model, optimizer, scaler):
        train()
    print(ulpscope.report("run.h5"))
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Union

from ._library import Error
from ._report import Report, Trace
from .check import Check, check

if TYPE_CHECKING:
    from .torch.preflight import Preflight
    from .torch.record import Recording

__all__ = ["Check", "Error", "Report", "Trace", "check", "findings", "load", "observe", "preflight", "record", "report"]

_Path = Union[str, "os.PathLike[str]"]


def record(path: _Path, model: Any, optimizer: Any = None, scaler: Any = None, **options: Any) -> "Recording":
    """Records what happens from here until the block is left, or close() is called. docs/pytorch.md lists the options."""
    from .torch.record import Recording

    return Recording(path, model, optimizer, scaler, **options)


def observe(name: str, tensor: Any, scale: float = 1.0) -> None:
    """Records a tensor that no recorded op made, as of a kernel that PyTorch does not dispatch, under that name: its statistics
    stand in the trace, and what is read from it came from there. `scale`: the factor that its values contain, as a loss scale.

    Without a recording in this thread it does nothing, and it raises nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling() or "ulpscope.torch.record" not in sys.modules:
        return
    from .torch.observe import observe as observe_tensor

    observe_tensor(name, tensor, scale)


def report(path: _Path) -> Report:
    """The report of a trace: .text, .verdict and .findings."""
    return Report(path)


def findings(path: _Path) -> List[Dict[str, Any]]:
    """The findings of a trace's report."""
    return Report(path).findings


def load(path: _Path) -> Trace:
    """A trace, whose table() gives rows."""
    return Trace(path)


def preflight(model: Any, batch: Any, loss_fn: Any, optimizer: Any = None, **options: Any) -> "Preflight":
    """Tries one training step in FP32, BF16 and FP16 on copies, and says which can be used. docs/pytorch.md lists the options."""
    from .torch.preflight import Preflight

    return Preflight(model, batch, loss_fn, optimizer, **options)
