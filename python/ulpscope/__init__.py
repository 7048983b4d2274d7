"""Records PyTorch training, op by op, and says what went wrong in it.

    with ulpscope.record("run.h5", model, optimizer, scaler):
        train()
    print(ulpscope.report("run.h5"))
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from ._library import Error
from ._options import Options, Trigger
from ._report import Report, Trace
from .check import Check, check
from .opcheck import OpCheck, opcheck

if TYPE_CHECKING:
    import torch

    from .torch.preflight import Preflight
    from .torch.record import Recording

__all__ = [
    "Check", "Error", "OpCheck", "Report", "Trace", "check", "findings", "load", "observe", "opcheck", "preflight", "record", "report"]

_Path = Union[str, "os.PathLike[str]"]


def record(path: _Path, model: "Union[torch.nn.Module, Sequence[torch.nn.Module], Mapping[str, torch.nn.Module]]", optimizer: Any = None,
           scaler: Any = None, *, level: str = Options.level, every: int = Options.every, modules: str = Options.modules,
           ops: str = Options.ops, phases: str = Options.phases, max_bytes: int = Options.max_bytes, overwrite: bool = Options.overwrite,
           name: str = Options.name, precision: str = Options.precision, accumulate: Optional[str] = Options.accumulate,
           compile: str = Options.compile, adapter: Optional[str] = Options.adapter, sample: int = Options.sample,
           first_step: int = Options.first_step, keep_last: int = Options.keep_last, after: int = Options.after,
           on: Union[Trigger, Sequence[Trigger]] = Options.on, stop_on: str = Options.stop_on) -> "Recording":
    """Records what happens from here until the block is left, or close() is called. docs/pytorch.md has more on each argument.

    path: the file to write; in a run of several processes a folder, in which each writes its own.
    model: a torch.nn.Module, or a list or dict of them. optimizer: an optimizer, or a list of all that step; None: each step ends one.
    scaler: the torch.amp.GradScaler, so that its settings are recorded.

    level: "health", "stats" or "full". every: histograms in each so many steps. sample: ops in each so many steps.
    first_step: the number of the first step, as of a training that is resumed.
    keep_last: hold the rows of so many steps in memory, and write them when something of `on` happens; 0: write all. after: so many steps
    behind that, too. on: "nan", "skips:N", "grad_norm:Nx" and signals, as names or numbers: one, or several with commas or in a list.
    stop_on: "nan", "overflow" or "backoff" ends the recording with the first step that has it; "": nothing does.
    modules, ops: patterns to record, with commas; phases: names, with commas; "": all.
    max_bytes: how many bytes the file may have, at least 2,000,000; 0: no limit. overwrite: replace a file that exists.
    name: that of the run. precision: "fp32", "bf16" or "fp16"; "": what autocast and parameters have.
    accumulate: "mean" or "sum" of the losses of micro-batches; None: by what they were divided by.
    compile: "see", or "eager" to run compiled models op by op. adapter: "callbacks", "dispatch" or "auto"; None: what ULPSCOPE_ADAPTER says.

    Raises TypeError and ValueError for other arguments, FileNotFoundError where the folder is not there, FileExistsError where the file is,
    Error where libulpscope.so cannot be had, RuntimeError where adapter="callbacks" cannot, and ImportError without torch. Once it has
    begun it raises nothing into the training: where it has to end, it warns.
    """
    from .torch.record import Recording

    return Recording(path, model, optimizer, scaler, level=level, every=every, modules=modules, ops=ops, phases=phases, max_bytes=max_bytes,
                     overwrite=overwrite, name=name, precision=precision, accumulate=accumulate, compile=compile, adapter=adapter,
                     sample=sample, first_step=first_step, keep_last=keep_last, after=after, on=on, stop_on=stop_on)


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
    """The report of a trace: .text, .verdict and .findings. `path`: the file, or a folder with one of each rank.

    Raises Error where the program `ulpscope` cannot be run, or cannot read the trace, and where a run that goes on has no whole step yet.
    """
    return Report(path)


def findings(path: _Path) -> List[Dict[str, Any]]:
    """The findings of a trace's report, as docs/report.schema.json has them. Raises what report() raises."""
    return Report(path).findings


def load(path: _Path) -> Trace:
    """A trace, whose table() gives rows. Nothing is read before that: table() and to_pandas() raise Error where the program `ulpscope`
    cannot be run, or cannot read the trace, or there is no such table."""
    return Trace(path)


def preflight(model: "torch.nn.Module", batch: Any, loss_fn: "Callable[[Any, Any], torch.Tensor]", optimizer: Any = None, *,
              formats: Sequence[str] = ("fp32", "bf16", "fp16"), cast: str = "autocast", scale: float = 2.0**16) -> "Preflight":
    """Tries one training step in FP32, BF16 and FP16 on copies, and says which can be used. The originals stay as they are.

    model: a torch.nn.Module. batch: whatever loss_fn takes. loss_fn(model, batch): runs the model that it is given, and returns the loss,
    one element; without autocast of its own. optimizer: one over parameters of the model; None: no updates are judged.
    formats: those to try besides FP32, which always runs. cast: "autocast" leaves weights in FP32, "model" casts the whole model.
    scale: FP16's loss scale, a power of two from 1 on, halved while gradients overflow.

    Raises TypeError and ValueError for other arguments, Error where the model cannot be copied, ImportError without torch, and what the
    step in FP32 raises; a step in another format that raises makes that format broken.
    """
    from .torch.preflight import Preflight

    return Preflight(model, batch, loss_fn, optimizer, formats=formats, cast=cast, scale=scale)
