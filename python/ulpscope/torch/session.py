"""A recording while it goes on: what hooks and ops tell, as steps and passes. The library makes calls of ops (tracker.py)."""

import contextlib
import ctypes
import fnmatch
import json
import math
import os
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from .._library import Refused
from . import backward, scalers, updates
from .adapter import Adapter, line_of_user
from .given import unwrapped
from .guard import Guard, warn
from .leaves import tensors_in
from .reached import Reached
from .samples import Samples
from .sampling import Sampling
from .signals import holds_signals
from .steps import Steps
from .tracker import BACKWARD, ENDED, OUTER, REPEATED, BackwardStruct, CoverageStruct, Tracker, UpdateStruct

COVERAGE = "recording."  # names of metrics begin so that say what was recorded

_LONGEST_TEXT = 200  # of an exception

_OPTIMIZER = torch.optim.Optimizer.profile_hook_step.__code__.co_filename


# Keeps the address of a tensor, and nothing of its memory; PyTorch's declarations lack it.
_address_of: Callable[[torch.Tensor], Any] = getattr(torch._C, "_WeakTensorRef")


class _Scale(NamedTuple):
    """The scale of a gradient scaler, as long as its tensor has that version."""

    tensor: Any
    version: int
    value: Optional[float]  # None: it comes when the step is settled


class Session:
    """The knowledge of a recording while it goes on. Nothing in it raises into the program that it records."""

    def __init__(self, models: List[Tuple[str, torch.nn.Module]], optimizers: List[Any], scaler: Any, options: Dict[str, Any],
                 run: Dict[str, Any], accumulate: Optional[str], sample: int, first_step: int, make_recorder: Callable[..., Any],
                 adapter: Adapter, way: str) -> None:
        self._models, self.scaler, self._options, self._run = models, scaler, options, run
        self._make_recorder = make_recorder
        self._guard = Guard(self)
        self.recorder: Any = None
        self.thread = threading.get_ident()  # whose calls of the model are recorded
        self.failed = self.refusal = ""
        self.lost = ""  # where the trace went that was written
        self._left_by = ""  # the exception that ended the recording
        self._is_left_by_fault = False
        self._file: Optional[Tuple[int, int]] = None  # which file is the trace
        self.is_told_steps = False  # the program ends steps itself
        self.stop_reason = ""  # of what stop_on names
        self._trigger = ""  # before the file was open
        self.refusals: "Counter[str]" = Counter()
        self.unseen: "Counter[str]" = Counter()  # by names of coverage
        self._names: Dict[int, str] = {}  # of parameters, by the address that stands for them in the library
        # The named tensors, so that no other has such an address; those that the program put away as weak references, which keep the
        # address alone. Not all of them, since tensors that have these cannot be swapped (torch.utils.swap_tensors).
        self._held: Dict[int, Any] = {}
        self.is_renamed = False  # a module has another parameter or module than when names were given
        self.hook_new_modules: Callable[[], None] = lambda: None
        self._modules: Dict[str, str] = {}
        self._sourced = False
        self._arrays: Dict[Tuple[Any, ...], Any] = {}  # of names of optimizers' states
        self._started: Optional[int] = None  # the frame that made a starting gradient
        self._scale: Optional[_Scale] = None
        self.scaler_updates = 0  # that were told
        self.has_loss = self.has_scaled = False  # a loss was recorded, and one that a scaler multiplied
        self.adapter, self.notes = adapter, [way]  # for the end of the trace
        self.tracker = Tracker(adapter.structure, self, getattr(make_recorder, "calls", None))
        self.adapter.fail = self.fail
        self.parts: Dict[str, torch.Tensor] = {}  # by name of a parameter: this process's part of it, where each has one
        self.steps = Steps(self.tracker, list(optimizers), accumulate, sample, first_step)
        self.samples = Samples(self)
        self.sampling: Sampling
        self.reached = Reached(self.name_of)
        try:
            self._name_parameters(optimizers)
        except BaseException:
            self.tracker.close()
            raise

    # Names.

    def _name_parameters(self, optimizers: Iterable[Any]) -> None:
        there: Set[int] = set()
        for prefix, model in self._models:
            for name, module in self.modules_of(prefix, model):
                for own, parameter in module.named_parameters(recurse=False):
                    full = f"{name}.{own}" if name else own
                    there.update(self._name_parameter(parameter, full, name))
        for number, optimizer in enumerate(optimizers):
            for index, (tensor, _) in enumerate(updates.parameters_of(optimizer)):
                there.update(self._name_parameter(tensor, f"optimizer{number}.parameter{index}", ""))
        for address in self._held.keys() - there:
            self._let_go(address)

    def _name_parameter(self, parameter: torch.Tensor, full: str, module: str) -> List[int]:
        """Names a parameter that has no name, and this process's part of it; their addresses."""
        part = updates.local(parameter)
        both = [parameter] if part is parameter else [parameter, part]
        if parameter._cdata not in self._names:
            self._names[parameter._cdata] = full
            self._modules.setdefault(full, module)
            for each in both:
                self._held[each._cdata] = each
                self.tracker.name_parameter(each._cdata, self.tracker.name(full), self.tracker.name(module))
            if part is not parameter:
                self.parts[full] = part
        return [each._cdata for each in both]

    def unmatched(self, patterns: str) -> List[str]:
        """Those of the patterns of modules that no module has; in them * stands for any characters and ? for one."""
        names = {name for prefix, model in self._models for name, _ in self.modules_of(prefix, model)}
        return [each for each in patterns.split(",") if each and not any(fnmatch.fnmatchcase(name, each.replace("[", "[[]")) for name in names)]

    def _let_go(self, address: int) -> None:
        """The program put a named tensor away, whose memory is free from then on."""
        held = self._held[address]
        if isinstance(held, torch.Tensor):
            self._held[address] = _address_of(held) if held._cdata == address else None

    def registered(self, module: torch.nn.Module, name: str, what: Any) -> None:
        """A module of the program got a parameter or a module."""
        if isinstance(what, torch.nn.Module) or (isinstance(what, torch.Tensor) and what._cdata not in self._names):
            self.is_renamed = True

    def _rename(self) -> None:
        """Names what modules have now, where that may be other parameters and modules than before."""
        if self.is_renamed:
            self.is_renamed = self._sourced = False
            self._name_parameters(self.steps.expected)
            self.hook_new_modules()

    def unsharded(self, name: str, module: torch.nn.Module) -> None:
        """Parameters that a module has while it runs, in the place of this process's parts of them (FSDP)."""
        if self.is_over or self.tracker.state.muted:
            return
        with self.guard():
            for own, parameter in module.named_parameters(recurse=False):
                full = f"{name}.{own}" if name else own
                part = self.parts.get(full)
                if part is None or updates.local(parameter) is not parameter:
                    continue
                for address in self._name_parameter(parameter, full, name):
                    self._let_go(address)
                described = self.adapter.describe([parameter, part])
                self.tracker.unsharded(described.at(0), described.at(1))

    def _local(self, tensors: List[Any]) -> List[Any]:
        return [updates.local(each) for each in tensors] if self.parts else tensors

    @staticmethod
    def modules_of(prefix: str, model: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
        for name, module in model.named_modules():
            yield ".".join(part for part in (prefix, name) if part), module

    def name_of(self, parameter: Any) -> Optional[str]:
        return None if parameter is None else self._names.get(parameter._cdata)

    def module_of(self, parameter: str) -> str:
        return self._modules.get(parameter, "")

    def reaches_parameter(self, roots: Tuple[torch.Tensor, ...]) -> bool:
        return any(self.name_of(leaf) is not None for leaf in backward.leaves_below(roots))

    def is_of_thread(self) -> bool:
        return threading.get_ident() == self.thread

    # Failures.

    @property
    def is_over(self) -> bool:
        """Whether nothing more is recorded."""
        return bool(self.failed or self.tracker.state.is_stopped)

    def guard(self) -> "Guard":
        """A block whose failure ends the recording and nothing else; ops inside are not recorded."""
        return self._guard

    def fail(self, error: BaseException) -> None:
        self._stop(f"{type(error).__name__}: {error}")

    def _stop(self, why: str) -> None:
        step = self.tracker.state.step
        where = f"in step {step}" if step >= self.steps.first_step else "before the first step"
        self.failed = f"ulpscope stopped recording {where}: {why}"
        self.tracker.state.is_stopped = 1
        warn(self.failed)

    def refuse(self, why: str) -> None:
        """Says before the first step that nothing is recorded; the program goes on."""
        self.refusal, self.failed = why, f"ulpscope records nothing: {why}"
        self.tracker.state.is_stopped = 1
        warn(self.failed)

    def leave(self) -> None:
        """Closes the file at once, where an op may be going on."""
        recorder, self.recorder = self.recorder, None
        self.failed, self.tracker.state.is_stopped = "the process ends", 1
        if recorder is not None:
            recorder.close()

    def leave_to_parent(self) -> None:
        """The process is a child of the one that records: the file and its writer are the parent's."""
        self.failed, self.recorder = "the process is a child of the one that records", None
        self.steps.recorder = None
        self.tracker.state.is_stopped = 1

    def refused(self, why: str) -> None:
        self.refusals[why] += 1

    # The recorder.

    def open(self) -> None:
        """Opens the file, once it is known in which types the model computes."""
        if self.recorder is not None:
            return
        run = dict(self._run)
        run["precision"] = run.get("precision") or self._precision()
        scaler = self.scaler
        is_scaled = scaler is not None and scaler.is_enabled()
        is_dynamic = is_scaled and all(hasattr(scaler, f"get_{name}") for name in ("growth_factor", "backoff_factor", "growth_interval"))
        if is_dynamic:
            run.update(dynamic_loss_scale=1, growth_factor=scaler.get_growth_factor(),
                       backoff_factor=scaler.get_backoff_factor(), growth_interval=scaler.get_growth_interval())
        try:
            self.recorder = self._make_recorder(run, self._options)
        except Refused as refusal:
            self.refuse(str(refusal))
            return
        self._file = _file_at(self._options["path"])
        self.steps.recorder = self.recorder
        self.tracker.state.hashes_bits = self._options["level"].endswith(",bits")
        self.tracker.record(self.recorder)
        if self._trigger:
            self.recorder.trigger(self._trigger)
        for name, value, kind in updates.settings_of(self.steps.expected):
            self.recorder.setting(name, value, kind, True)
        for prefix, model in self._models:
            if prefix:  # names of modules begin with it, and code for them with the model that has it
                place = prefix if prefix.isdigit() else json.dumps(prefix, ensure_ascii=False)
                self.recorder.setting(f"models[{place}]", type(model).__name__, "other", True)
        if is_scaled:
            self.recorder.setting("init_scale", f"{scaler.get_scale():.12g}", "scale_initial", True)
        if is_dynamic:
            for name, value, kind in (("growth_factor", scaler.get_growth_factor(), "scale_growth_factor"),
                                      ("backoff_factor", scaler.get_backoff_factor(), "scale_backoff_factor"),
                                      ("growth_interval", scaler.get_growth_interval(), "scale_growth_interval")):
                self.recorder.setting(name, f"{value:.12g}", kind, True)
        self.recorder.setting("precision", run["precision"], "precision", True)
        for name, kind in (("level", "recording_level"), ("every", "recording_interval"), ("max_bytes", "recording_limit")):
            if self._options[name]:
                self.recorder.setting(name, str(self._options[name]), kind, True)

    def _precision(self) -> str:
        device = next((parameter.device.type for _, model in self._models for parameter in model.parameters()), "cpu")
        narrow = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        if torch.is_autocast_enabled(device):
            return narrow.get(torch.get_autocast_dtype(device), "fp32")
        types = {parameter.dtype for _, model in self._models for parameter in model.parameters()}
        return narrow.get(next(iter(types)), "fp32") if len(types) == 1 else "fp32"

    def close(self) -> None:
        try:
            self._close()
        finally:
            # Another thread may be in an op just now: what it uses is its own to free.
            if threading.get_ident() == self.thread:
                self.free()

    def free(self) -> None:
        """Frees what the library and the adapter know."""
        self.tracker.close()
        self.adapter.close()

    def _close(self) -> None:
        if threading.get_ident() == self.thread:  # else a backward pass may go through its hooks just now
            self.adapter.release()
        if self.recorder is None and not self.failed:
            self.open()
        if self.recorder is None:
            return
        if not self.failed:
            if not self.steps.is_behind_the_last():
                self.end_step()
            self._tell()
        path = self._options["path"]
        found = _file_at(path)  # before it is closed: some file systems number files anew then
        if self._file not in (None, found):
            self.lost = (f"there is no trace at {path}: it was deleted or moved while it was written" if found is None else
                         f"the trace at {path} is not this one: another file took its place while it was written")
        recorder, self.recorder = self.recorder, None
        recorder.close()

    def _tell(self) -> None:
        recorder = self.recorder
        for note in (*self.notes, *self.samples.notes()):
            recorder.note(note)
        if self.steps.sample > 1:
            recorder.note(f"Ops were recorded in steps whose number is a multiple of {self.steps.sample}, and of the others the "
                          "results of steps alone, as was asked (sample).")
        waits, lost = self.tracker.waits(), self.tracker.lost()
        if waits:
            recorder.note("Statistics of tensors on a device were taken there by ops of PyTorch. Operands of the first NaN and Inf, and "
                          "roundings of casts from FP64, were not kept of them.")
        if lost:
            recorder.note(f"Statistics of {lost} outputs are not known, since a CUDA graph was captured when their step ended.")
        if self._left_by:
            # A class of the program's own may be how it stops early.
            tell = recorder.warning if self._is_left_by_fault else recorder.note
            tell(f"An exception of the program ended the recording: {self._left_by}")
        else:
            for told in self.reached.warnings(self._models, self.steps.expected, self.module_of):
                recorder.warning(told)
        if self.has_loss and not self.has_scaled and self.scaler is not None and self.scaler.is_enabled():
            told = (f"The gradient scaler ({type(self.scaler).__name__}) was not seen to multiply a loss: losses and gradients are told as "
                    "if they had no loss scale.")
            recorder.warning(told)
            warn(f"ulpscope: {told}")
        unseen = {type(each).__name__ for each in self.steps.expected if not isinstance(each, torch.optim.Optimizer)}
        if unseen and not self.is_told_steps:
            told = (f"Steps of {', '.join(sorted(unseen))} are not seen, as it is no torch.optim.Optimizer: run.step() behind each one "
                    "tells where a step ends.")
            recorder.warning(told)
            warn(f"ulpscope: {told}")
        for name, value in self._coverage():
            recorder.metric(COVERAGE + name, "other", value)
        for why, count in self.refusals.most_common(3):
            recorder.warning(f"{count} calls were refused by the recorder: {why}")
        self._ask()

    def _coverage(self) -> Iterator[Tuple[str, float]]:
        """Numbers of what was recorded, what was not and why, and what it took; docs/trace_format.md has the names."""
        told = CoverageStruct()
        self.tracker.coverage_of(told)
        yield "calls", told.calls
        for kind, count in self.tracker.counts("not_read"):
            yield f"not_read.{kind}", count
        for kind, count in self.tracker.counts("unmapped"):
            yield f"unmapped.{kind}", count
        if self.refusals:
            yield "refused", sum(self.refusals.values())
        yield from self.unseen.items()
        if told.timed_steps:
            yield "timed_steps", told.timed_steps
            yield "timed_seconds", told.timed_seconds
            yield "recording_seconds", told.recording_seconds

    def _ask(self) -> None:
        """Whether the file can still be written: tensors are read for nothing else."""
        why = "" if self.failed else self.recorder.failure()
        if why:
            self._stop(why)
        elif self._options["stop_on"] and not self.stop_reason:
            self.stop_reason = self.recorder.stop_reason()
            if self.stop_reason:
                self.tracker.state.is_stopped = 1

    def left_by(self, error: Optional[BaseException]) -> None:
        """An exception ends the recording, which the trace then says."""
        if not isinstance(error, Exception):  # others are meant to end programs
            return
        self._is_left_by_fault = type(error).__module__ == "builtins" and not isinstance(error, StopIteration)
        self._left_by = type(error).__name__
        with contextlib.suppress(Exception):  # the text of an exception is code of the program
            first = (str(error).strip().splitlines() or [""])[0][:_LONGEST_TEXT]
            self._left_by += f": {first}" if first else ""

    def trigger(self, why: str) -> None:
        """Makes a recording that holds steps write them."""
        if self.recorder is None:
            self._trigger = why
        else:
            self.recorder.trigger(why)

    # Steps and passes.

    def enter(self, evaluating: bool) -> None:
        """The model is called from outside of it."""
        self.open()
        at = self.tracker.state
        if at.state == ENDED and not evaluating:
            self.end_step()
        if self.is_over:
            return
        before = at.state
        self.steps.forward(evaluating)
        if before != at.state or evaluating:
            self.tracker.begin_pass(self.steps.current[0])
        self._rename()
        if not self._sourced and not self.steps.is_left_out:
            self._sourced = True
            self._sources()

    def end_step(self) -> None:
        if not self.tracker.state.is_open:
            return
        try:
            self.steps.end()
        except Refused as refusal:
            self.refused(str(refusal))
        self.tracker.end_step()
        self._ask()

    def takes_turn(self, optimizer: Any) -> None:
        """An optimizer is about to step, or its gradients are unscaled for that."""
        before = self.tracker.state.step
        self.steps.takes_turn(optimizer)
        if self.tracker.state.step != before:
            self.tracker.end_step()
            self._ask()

    def _sources(self) -> None:
        """Rows for parameters and buffers whose makers are not known: at the beginning, and where a pause changed them."""
        self._name_parameters(self.steps.expected)
        seen: Set[int] = set()
        for prefix, model in self._models:
            for name, module in self.modules_of(prefix, model):
                for role, tensors in (("weight", module.named_parameters(recurse=False)),
                                      ("buffer", module.named_buffers(recurse=False))):
                    for own, tensor in tensors:
                        if id(tensor) not in seen:
                            seen.add(id(tensor))
                            self._source(tensor, role, f"{name}.{own}" if name else own, name, own)
        for optimizer in self.steps.expected:
            for parameter, _ in updates.parameters_of(optimizer):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    self._source(parameter, "weight", str(self.name_of(parameter)), "", "")

    def _source(self, tensor: torch.Tensor, role: str, parameter: str, module: str, name: str) -> None:
        tracker = self.tracker
        described = self.adapter.describe([self.parts.get(parameter, tensor)])
        if not described.is_readable(0) or tracker.has_maker(described.at(0)):
            return
        module = self._modules.setdefault(parameter, module)
        role_number = tracker.library.ulpscope_role(role.encode())
        # A buffer that nothing reads may hold anything: buffers have a row once they are read.
        tracker.source(described.at(0), role_number, tracker.name(parameter), tracker.name(module), tracker.name(name),
                       role == "buffer")

    def forget(self) -> None:
        """Ops were not seen, that may have changed parameters and buffers."""
        self.tracker.forget()
        self._sourced = False

    def pause(self) -> None:
        self.unseen["paused_blocks"] += 1
        self.tracker.state.paused += 1

    def resume(self) -> None:
        """A pause ended, in which parameters and buffers may have changed."""
        self.tracker.state.paused -= 1
        self._sourced = False

    # The library's questions, into which nothing is raised.

    def on_enter(self, _: Any, evaluating: int) -> None:
        with self.guard():
            self.enter(bool(evaluating))

    def on_backward(self, _: Any, makes_gradient: int, start: Any) -> None:
        with self.guard():
            if makes_gradient and not backward.is_starting_gradient():
                return
            found = backward.find_start()
            began, self._started = self._started, None
            if found is None:
                return
            answer = start.contents
            answer.is_found, answer.is_nested, answer.is_new = 1, found.nested, began != id(found.frame)
            if makes_gradient:
                self._started = id(found.frame)
            answer.scale = self._backward_begins(found) if answer.is_new else 1.0

    def on_backward_ended(self, _: Any) -> None:
        with self.guard():
            self._started = None
            self.adapter.release()

    def on_scale_of_call(self, _: Any, scale: Any) -> int:
        with self.guard():
            call = next(scalers.running(self.scaler, 16), None)
            if call is not None and call.method in scalers.SCALES:  # else it steps or unscales, and hooks of the user's may multiply there
                self.has_scaled = True
                scale[0] = self._scale_of(call.scaler)
                self.steps.scale(scale[0])
                return 1
        return 0

    def on_unscaled(self, _: Any, overflowed: int) -> int:
        with self.guard():
            return int(self._unscaled(overflowed != 0))
        return 0

    def on_scaler_updated(self, _: Any, scale: float) -> None:
        with self.guard():
            self.scaler_updates += 1
            self._scale = self._updated_scale() if math.isnan(scale) else None
            self.steps.scaler_updated(scale)

    def on_scale_told(self, _: Any, scale: float) -> None:
        with self.guard():
            self.steps.scale_told(scale)
            if self._scale is not None:
                self._scale = self._scale._replace(value=scale)

    def on_norms(self, _: Any, before: float, after: float) -> None:
        self._norms(before, after)

    def on_batch(self, _: Any, batch: int, first: int, count: int) -> int:
        with self.guard():
            evaluating, micro_batch = self.steps.current
            return int(self.samples.read(evaluating, micro_batch, batch, first, count))
        return 0

    def on_line(self, _: Any) -> int:
        with self.guard():
            return self.tracker.name(line_of_user())
        return 0

    def on_refused(self, _: Any, why: bytes) -> None:
        self.refused(why.decode("utf-8", "replace"))

    def on_failed(self, _: Any, why: bytes) -> None:
        with self.guard():
            if not self.tracker.state.is_stopped:  # an op may go on while a handler of a signal closes
                self._stop(why.decode("utf-8", "replace"))

    # Modules.

    @holds_signals
    def module_begins(self, number: int, is_compiled: bool, args: Any, kwargs: Any) -> None:
        """A module whose name has that number is called."""
        if self.is_over:
            return
        tracker, task = self.tracker, torch._C._current_graph_task_id()
        with self.guard():
            inner = tracker.begin_inner_module(number, is_compiled, task, False)
            if inner == REPEATED:
                if _calls_itself():
                    inner = tracker.begin_inner_module(number, is_compiled, task, True)
                else:
                    tracker.leave_modules()
                    inner = OUTER
            if inner != OUTER:
                return
            at, evaluating = tracker.state, not torch.is_grad_enabled()
            if self.adapter.rests:  # a step that did not end, for its optimizer raised
                self.adapter.rest(False)
                at.optimizing = 0
            if task == -1:
                self.sampling.arrange()
                self.enter(evaluating)
                self.steps.has_calls = True
                self.sampling.leave()
                if self.is_over or not self.sampling.is_looking:
                    return
                given = self.adapter.describe(tensors_in((args, kwargs)))
                tracker.inputs(given.address, given.count)
            tracker.begin_module(number, evaluating, is_compiled, task)

    @holds_signals
    def module_ends(self, number: int, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self.failed or not self.sampling.is_looking:
            return
        tracker = self.tracker
        if tracker.state.is_stopped or tracker.state.muted:
            tracker.end_module(number)
            return
        with self.guard():
            outputs = tensors_in(output)
            given = self.adapter.describe(outputs)
            if tracker.is_opaque(given.address, given.count):
                self._opaque(number, module, args, outputs)
            tracker.end_module(number)

    def _opaque(self, number: int, module: torch.nn.Module, args: Any, outputs: List[torch.Tensor]) -> None:
        """What a module returned, and no op made."""
        tracker, of_class = self.tracker, type(unwrapped(module)).__name__
        reads = [*tensors_in(args), *module.parameters(), *module.buffers()]
        described = self.adapter.describe([*reads, *outputs])
        nodes = [-1 if each.grad_fn is None else each.grad_fn._sequence_nr() for each in outputs]
        slots = [index if each.grad_fn is None else each.output_nr for index, each in enumerate(outputs)]
        count = len(outputs)
        tracker.opaque(number, tracker.name(of_class), torch._C._current_graph_task_id(), described.address, len(reads),
                       described.at(len(reads)), (ctypes.c_int64 * count)(*nodes), (ctypes.c_uint32 * count)(*slots), count)

    def observe(self, name: str, tensor: torch.Tensor, scale: float) -> None:
        tracker, described = self.tracker, self.adapter.describe([tensor])
        tracker.observe(tracker.name(name), scale, torch._C._current_graph_task_id(), described.address)

    # Backward passes.

    def _backward_begins(self, start: backward.Start) -> float:
        """The loss scale in the gradients of the pass that begins."""
        at = self.tracker.state
        if not at.is_open:
            return 1.0
        given = start.roots()
        described = self.adapter.describe(given)
        roots = [root for index, root in enumerate(given) if root.grad_fn is not None and described.is_readable(index)]
        if not start.nested:
            self.adapter.release()
        reaches = self.adapter.follow(roots)
        began = BackwardStruct()
        if len(roots) < len(given):
            described = self.adapter.describe(roots)
        takes_losses = reaches and not start.is_grad and not start.nested
        if takes_losses:
            self.reached.loss_goes_back(roots)
        self.tracker.begin_backward(described.address, described.count, takes_losses, began)
        if began.has_loss:
            self.has_loss = True
            loss, later, tracker = began.loss, began.later, self.tracker
            self.steps.backward(lambda: tracker.loss(later) if later else loss,
                                None if math.isnan(began.divisor) else began.divisor)
        elif takes_losses:
            at.state = BACKWARD
        return began.scale

    # The scaler.

    def _scale_of(self, scaler: Any) -> float:
        """The scale of a gradient scaler: the one that its last update left, unless it was changed since. Else a device that has
        it is waited for."""
        tensor, known = getattr(scaler, "_scale", None), self._scale
        if not isinstance(tensor, torch.Tensor):
            return float(scaler.get_scale())
        is_known = known is not None and known.tensor is tensor and known.version == tensor._version
        if not is_known or known is None or known.value is None:
            known = self._scale = _Scale(tensor, tensor._version, float(scaler.get_scale()))
        return known.value or 0.0

    def _updated_scale(self) -> Optional["_Scale"]:
        """The scale that a scaler updates just now; its value comes when the step is settled."""
        tensor = next((call.scaler._scale for call in scalers.running(None) if call.method == "update"), None)
        return None if tensor is None else _Scale(tensor, tensor._version + self.adapter.versions_behind, None)

    def _unscaled(self, overflowed: bool) -> bool:
        """The scaler looked at the gradients of one optimizer; says whether it unscaled them. Where they may have overflowed, its
        step is skipped unless it comes before the scaler's update."""
        calls = list(scalers.running(self.scaler))
        if any(call.method == scalers.CHECKS for call in calls):
            return False
        optimizer = next((found for found in (call.optimizer for call in calls) if found is not None), None)
        if optimizer is not None:
            self.reached.optimizer_turns(optimizer)
            self.takes_turn(optimizer)
            self.steps.rate(updates.rate_of(optimizer.param_groups[0]))
            if overflowed:
                self.steps.overflowed.add(id(optimizer))
        return True

    # Optimizers.

    def _concerns(self, optimizer: Any) -> bool:
        if any(each is optimizer for each in self.steps.expected):
            return True
        return any(self.name_of(parameter) is not None for parameter, _ in updates.parameters_of(optimizer))

    @holds_signals
    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.is_over:
            return
        with self.guard(), torch._C._DisableTorchDispatch():
            at = self.tracker.state
            self._rename()
            has_closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None
            self.reached.optimizer_turns(optimizer)
            if not self._concerns(optimizer):
                return
            if not has_closure:  # else gradients come later
                self.reached.optimizer_steps(optimizer)
            if at.paused:
                return
            if at.optimizing and _optimizers_stepping() == 1:  # the one before did not end, for it raised
                at.optimizing = 0
            at.optimizing += 1
            if at.optimizing == 1:
                self.takes_turn(optimizer)
                self.sampling.leave()
                if not self.sampling.is_looking:
                    return
                self._keep(optimizer, has_closure)
                self.adapter.rest(not has_closure)

    def _keep(self, optimizer: Any, has_closure: bool) -> None:
        """Copies of what a step reads; with a closure the gradients come later."""
        pairs: List[Optional[torch.Tensor]] = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = None if has_closure else parameter.grad
                if has_closure or gradient is not None:
                    pairs += (parameter, gradient)
        given = self.adapter.describe(self._local(pairs))
        self.tracker.keep(given.address, given.count // 2, not updates.leaves_gradients(optimizer))

    @holds_signals
    def optimizer_ends(self, optimizer: Any) -> None:
        if self.is_over:
            return
        with self.guard(), torch._C._DisableTorchDispatch():
            at = self.tracker.state
            if at.paused or not self._concerns(optimizer) or at.optimizing == 0:
                return
            at.optimizing -= 1
            if at.optimizing:  # a step() that another one called, as of a class that extends an optimizer
                return
            self.adapter.rest(False)
            if not at.is_open:
                return
            found, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
            skipped = found is not None and updates.number(found) > 0
            if self.sampling.is_looking:
                before, after = self._updated(optimizer, skipped, 1.0 if scale is None else updates.number(scale))
                self._norms(before, after)
            self.steps.step_taken(optimizer, updates.rate_of(optimizer.param_groups[0]), skipped)
            self.sampling.stepped()

    def _norms(self, before: float, after: float) -> None:
        if not self.parts:  # else they are of a part of the gradients
            self.steps.norms(before, after)

    def _state_names(self, names: Tuple[Any, ...]) -> Any:
        """An array of the library's numbers of names."""
        known = self._arrays.get(names)
        if known is None:
            known = self._arrays[names] = (ctypes.c_uint32 * len(names))(*(self.tracker.name(str(name)) for name in names))
        return known

    def _updated(self, optimizer: Any, skipped: bool, factor: float) -> Tuple[float, float]:
        """Rows for the updates of an optimizer; the squares of the gradients' norms before and after clipping."""
        tracker = self.tracker
        before, after = ctypes.c_double(), ctypes.c_double()
        for group in optimizer.param_groups:
            update = UpdateStruct(factor=factor, optimizer=tracker.name(type(optimizer).__name__))
            updates.describe_group(optimizer, group, update)
            for names, tensors in updates.parameters_with_states(optimizer, group):
                given = self.adapter.describe(self._local(tensors))
                update.tensors, update.count = given.address, len(tensors) // (2 + len(names))
                update.state_names, update.states_count = self._state_names(names), len(names)
                tracker.updated(update, skipped, before, after)
        return before.value, after.value


def _file_at(path: str) -> Optional[Tuple[int, int]]:
    """Which file has that name, if one has."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _calls_itself() -> bool:
    """Whether the module whose hook this is called in is on the stack a second time; else an exception that hooks are not told of, as
    KeyboardInterrupt, left it."""
    module = None
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_call_impl":
            called = frame.f_locals.get("self")
            if module is not None and called is module:
                return True
            module = called if module is None else module
        frame = frame.f_back
    return False


def _optimizers_stepping() -> int:
    """How many calls of step() are on the stack."""
    count = 0
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        count += frame.f_code.co_filename == _OPTIMIZER and frame.f_code.co_name == "wrapper"
        frame = frame.f_back
    return count
