"""A recording while it goes on: what hooks and the dispatch mode tell, as steps, passes, calls and labels."""

import sys
import threading
import warnings
from collections import Counter
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple, Type

import torch

from .._library import Call, Label, Refused, Value
from . import backward, updates
from .dispatch import Mode, on_host, tensors_in
from .steps import Steps
from .values import DTYPES, Made, Values, storage_of, unreadable

_GRAD_SCALER = torch.amp.GradScaler.scale.__code__.co_filename

# Looks for overflows without unscaling, for an optimizer that unscales in its step.
_CHECK = torch.amp.GradScaler._check_inf_per_device.__code__

_OPTIMIZER = torch.optim.Optimizer.profile_hook_step.__code__.co_filename


class Entry(NamedTuple):
    """A module that is being called."""

    name: str
    evaluating: bool
    task: int  # the graph task in which it was called, or -1


class Stack(threading.local):
    """The modules that this thread is in."""

    def __init__(self) -> None:
        self.entries: List[Entry] = []


def named_models(model: Any) -> List[Tuple[str, torch.nn.Module]]:
    """The models given, each with what its names begin with."""
    if isinstance(model, torch.nn.Module):
        return [("", _unwrapped(model))]
    if isinstance(model, dict):
        return [(str(name), _unwrapped(each)) for name, each in model.items()]
    if isinstance(model, (list, tuple)):
        return [(str(index), _unwrapped(each)) for index, each in enumerate(model)]
    raise TypeError(f"model is no torch.nn.Module, and no list or dict of them: {type(model).__name__}")


def _unwrapped(model: Any) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is no torch.nn.Module, and no list or dict of them: {type(model).__name__}")
    inner = getattr(model, "_orig_mod", None)  # where torch.compile made it
    return inner if isinstance(inner, torch.nn.Module) else model


def listed_optimizers(given: Any) -> List[Any]:
    """The optimizers given; wrappers, as of Accelerate, by what they wrap."""
    if given is None:
        return []
    optimizers = []
    for each in given if isinstance(given, (list, tuple)) else [given]:
        while not isinstance(each, torch.optim.Optimizer) and hasattr(each, "optimizer"):
            each = each.optimizer
        if not hasattr(each, "param_groups"):
            raise TypeError(f"optimizer has no param_groups: {type(each).__name__}")
        optimizers.append(each)
    return optimizers


class Guard:
    """A block in which nothing is recorded, and from which no exception comes."""

    __slots__ = ("_session", "_before")

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.lock.acquire()
        self._before, self._session.muted = self._session.muted, True

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> bool:
        session = self._session
        try:
            if isinstance(error, Refused):
                session.refused(str(error))
            elif isinstance(error, Exception) and not session.failed:
                session.fail(error)
        finally:
            session.muted = self._before or bool(session.failed)
            session.lock.release()
        return isinstance(error, Exception)


class Session:
    """The knowledge of a recording while it goes on. Nothing in it raises into the program that it records."""

    def __init__(self, models: List[Tuple[str, torch.nn.Module]], optimizers: List[Any], scaler: Any, options: Dict[str, Any],
                 run: Dict[str, Any], accumulate: Optional[str], make_recorder: Callable[..., Any]) -> None:
        self._models, self._scaler, self._options, self._run = models, scaler, options, run
        self._make_recorder = make_recorder
        self.recorder: Any = None
        self.muted = False
        self.thread = threading.get_ident()  # whose calls of the model are recorded
        self.paused = 0  # how many pauses there are, one in another
        self.failed = ""
        self.not_read: "Counter[str]" = Counter()
        self.unmapped: "Counter[str]" = Counter()
        self.refusals: "Counter[str]" = Counter()
        self.lock = threading.RLock()
        self._stack = Stack()
        self._names: Dict[int, str] = {}
        self._modules: Dict[str, str] = {}
        self._sourced = False
        self.unread: Dict[int, Tuple[torch.Tensor, str, str]] = {}  # by storage: buffers that nothing has read, and their names
        self._inputs: Set[Value] = set()  # in this pass
        self._copies: Dict[int, List[updates.Copy]] = {}
        self.values = Values()
        self.nodes = backward.Nodes()
        self.watch = backward.Watch(self.nodes, self.name_of, self._handed_on)
        self.mode = Mode(self)
        self.steps = Steps(None, list(optimizers), accumulate)
        self._name_parameters(optimizers)

    # Names.

    def _name_parameters(self, optimizers: Iterable[Any]) -> None:
        for prefix, model in self._models:
            for name, module in self.modules_of(prefix, model):
                for own, parameter in module.named_parameters(recurse=False):
                    full = f"{name}.{own}" if name else own
                    if id(parameter) not in self._names:
                        self._names[id(parameter)] = full
                        self._modules[full] = name
        for number, optimizer in enumerate(optimizers):
            for index, (tensor, _) in enumerate(updates.parameters_of(optimizer)):
                self._names.setdefault(id(tensor), f"optimizer{number}.parameter{index}")

    @staticmethod
    def modules_of(prefix: str, model: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
        for name, module in model.named_modules():
            yield ".".join(part for part in (prefix, name) if part), module

    def name_of(self, parameter: Any) -> Optional[str]:
        return self._names.get(id(parameter))

    def module_of(self, parameter: str) -> str:
        return self._modules.get(parameter, "")

    # Failures.

    def guard(self) -> "Guard":
        """A block whose failure ends the recording and nothing else; ops inside are not recorded."""
        return Guard(self)

    def fail(self, error: BaseException) -> None:
        self._stop(f"{type(error).__name__}: {error}")

    def _stop(self, why: str) -> None:
        where = f"in step {self.steps.number}" if self.steps.number >= 0 else "before the first step"
        self.failed = f"ulpscope stopped recording {where}: {why}"
        self.muted = True
        warn(self.failed)

    def refused(self, why: str) -> None:
        self.refusals[why] += 1

    # The recorder.

    def open(self) -> None:
        """Opens the file, once it is known in which types the model computes."""
        if self.recorder is not None:
            return
        run = dict(self._run)
        run["precision"] = run.get("precision") or self._precision()
        scaler = self._scaler
        if scaler is not None and scaler.is_enabled():
            run.update(dynamic_loss_scale=1, growth_factor=scaler.get_growth_factor(),
                       backoff_factor=scaler.get_backoff_factor(), growth_interval=scaler.get_growth_interval())
        self.recorder = self._make_recorder(run, self._options)
        self.steps.recorder = self.recorder
        for optimizer in self.steps.expected[:1]:
            for name, value, kind in updates.settings_of(optimizer):
                self.recorder.setting(name, value, kind, True)
        if scaler is not None and scaler.is_enabled():
            for name, value, kind in (("init_scale", scaler.get_scale(), "scale_initial"),
                                      ("growth_factor", scaler.get_growth_factor(), "scale_growth_factor"),
                                      ("backoff_factor", scaler.get_backoff_factor(), "scale_backoff_factor"),
                                      ("growth_interval", scaler.get_growth_interval(), "scale_growth_interval")):
                self.recorder.setting(name, f"{value:g}", kind, True)
        self.recorder.setting("precision", run["precision"], "precision", True)

    def _precision(self) -> str:
        device = next((parameter.device.type for _, model in self._models for parameter in model.parameters()), "cpu")
        narrow = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        if torch.is_autocast_enabled(device):
            return narrow.get(torch.get_autocast_dtype(device), "fp32")
        types = {parameter.dtype for _, model in self._models for parameter in model.parameters()}
        return narrow.get(next(iter(types)), "fp32") if len(types) == 1 else "fp32"

    def close(self) -> None:
        self.watch.release()
        if self.recorder is None and not self.failed:
            self.open()
        if self.recorder is None:
            return
        if not self.failed:
            self.end_step()
            self._tell()
        recorder, self.recorder = self.recorder, None
        recorder.close()

    def _tell(self) -> None:
        recorder = self.recorder
        if self.not_read:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.not_read.items()))
            recorder.note(f"Ops on tensors of kinds that are not read were left out: {kinds}.")
        if self.unmapped:
            total = sum(self.unmapped.values())
            kinds = ", ".join(sorted(self.unmapped)[:5])
            recorder.note(f"{total} backward ops have no known forward op: {kinds}.")
        for why, count in self.refusals.most_common(3):
            recorder.warning(f"{count} calls were refused by the recorder: {why}")
        self._ask()

    def _ask(self) -> None:
        """Whether the file can still be written: tensors are read for nothing else."""
        why = "" if self.failed else self.recorder.failure()
        if why:
            self._stop(why)

    # Steps and passes.

    @property
    def stack(self) -> List[Entry]:
        return self._stack.entries

    def enter(self, evaluating: bool) -> None:
        """The model is called from outside of it."""
        self.open()
        if self.steps.state == "ended" and not evaluating:
            self.end_step()
        if self.failed:
            return
        before = self.steps.state
        self.steps.forward(evaluating)
        if before != self.steps.state or evaluating:
            self.mode.new_pass()
            self._inputs.clear()
            self.values.prune()
        if not self._sourced:
            self._sourced = True
            self._sources()

    def end_step(self) -> None:
        if not self.steps.open:
            return
        try:
            self.steps.end()
        except Refused as refusal:
            self.refused(str(refusal))
        self.nodes.end_step()
        self._ask()

    def takes_turn(self, optimizer: Any) -> None:
        """An optimizer is about to step, or its gradients are unscaled for that."""
        before = self.steps.number
        self.steps.takes_turn(optimizer)
        if self.steps.number != before:
            self.nodes.end_step()
            self._ask()

    def _sources(self) -> None:
        """Rows for parameters and buffers whose makers are not known: at the beginning, and where a pause changed them."""
        seen: Set[int] = set()
        for prefix, model in self._models:
            for name, module in self.modules_of(prefix, model):
                for role, tensors in (("weight", module.named_parameters(recurse=False)),
                                      ("buffer", module.named_buffers(recurse=False))):
                    for own, tensor in tensors:
                        if id(tensor) in seen or unreadable(tensor):
                            continue
                        seen.add(id(tensor))
                        if self._has_maker(tensor):
                            continue
                        full = f"{name}.{own}" if name else own
                        self._modules.setdefault(full, name)
                        if role == "buffer":
                            self.unread[storage_of(tensor)] = (tensor, full, own)
                        else:
                            self.source(tensor, role, full, own)
        for optimizer in self.steps.expected:
            for parameter, _ in updates.parameters_of(optimizer):
                if id(parameter) not in seen and not unreadable(parameter) and not self._has_maker(parameter):
                    seen.add(id(parameter))
                    self.source(parameter, "weight", self._names[id(parameter)], "")

    def _has_maker(self, tensor: torch.Tensor) -> bool:
        made = self.values.find(tensor).last
        return made is not None and made.step >= 0

    def resume(self) -> None:
        """A pause ended, in which parameters and buffers may have changed."""
        self.paused -= 1
        self._sourced = False

    def source_buffers(self, reads: List[torch.Tensor]) -> None:
        """Rows for buffers that are read for the first time: what nothing reads may hold anything."""
        for tensor in reads:
            buffer = self.unread.pop(storage_of(tensor), None)
            if buffer is not None:
                self.source(buffer[0], "buffer", *buffer[1:])

    def source(self, tensor: torch.Tensor, role: str, parameter: str, name: str) -> Optional[Made]:
        """A row for what no op made."""
        call = Call("source" if parameter else name, "data", "source", "source", self.module_of(parameter), parameter=parameter)
        made = self.mode.emit(call, [(0, tensor, Label(role, parameter, name))])
        if role == "input":
            self._inputs.update(each.value for each in made)
        return made[0] if made else None

    def is_new_input(self, made: Optional[Made]) -> bool:
        """Whether nobody made a tensor, or it was the input of another pass."""
        return made is None or (made.role == "input" and made.value not in self._inputs)

    # Modules.

    def module_begins(self, name: str, args: Any, kwargs: Any) -> None:
        with self.guard():
            if self.failed:
                return
            task = torch._C._current_graph_task_id()
            evaluating = not torch.is_grad_enabled()
            if self.stack:
                evaluating = self.stack[-1].evaluating
            if self.steps.quiet:  # a step that did not end, for its optimizer raised
                self.steps.quiet, self.steps.optimizing = False, 0
            if not self.stack and task == -1:
                self.enter(evaluating)
                if self.failed:
                    return
                for tensor in _leaves((args, kwargs)):
                    if not unreadable(tensor) and self.is_new_input(self.values.find(tensor).last):
                        self.source(tensor, "input", "", "input")
            self.stack.append(Entry(name, evaluating, task))

    def module_ends(self, name: str) -> None:
        entries = self.stack
        if any(entry.name == name for entry in entries):
            while entries.pop().name != name:
                pass

    # Backward passes.

    def backward_begins(self, start: backward.Start) -> float:
        """The loss scale in the gradients of the pass that begins."""
        if not self.steps.open:
            return 1.0
        roots = [root for root in start.roots if root.grad_fn is not None and not unreadable(root)]
        reaches = self.watch.follow(roots, not start.nested)
        scale = 1.0
        total: Optional[float] = None
        divisor: Optional[float] = None
        for root in roots:
            made = self.values.find(root).last
            if made is None or made.step < 0:
                continue
            scale = made.scale
            if start.is_grad or start.nested or not reaches or root.numel() != 1:
                continue
            value = made.unscaled_loss if made.unscaled_loss is not None else self.number_in(root)
            total = value if total is None else total + value
            loss = made.source if made.function == "scale" else made
            if loss is not None:
                divisor = loss.divisor
                self._label(loss, Label("loss", loss.parameter, loss.name, loss.scale))
        if total is not None:
            self.steps.backward(total, divisor)
        elif reaches and not start.nested and not start.is_grad:
            self.steps.state = "backward"
        return scale

    def _label(self, made: Made, label: Label) -> None:
        made.role, made.parameter = label.role, label.parameter
        if made.step == self.steps.number and self.steps.open:
            self.recorder.set_label(made.op, made.value.slot, label)

    def gradient_of(self, made: Made, value: Value, index: int) -> None:
        if made.has_gradient_of or made.step != self.steps.number or made.parameter or made.value == value:
            return
        made.has_gradient_of = True
        self.recorder.set_gradient_of(made.op, made.value.slot, value, index)

    def _handed_on(self, sequence: int, index: int, edge: backward.Edge, gradient: torch.Tensor) -> None:
        with self.guard():
            if self.failed or self.paused or unreadable(gradient) or gradient.dtype not in DTYPES:
                return
            self.watch.handed_on[storage_of(gradient)] = edge
            made = self.values.find(gradient).last
            if made is None or made.step != self.steps.number or made.phase != "backward":
                return
            if edge.parameter is None:
                target = self.watch.target(edge)
                if target is not None:
                    self.gradient_of(made, target, self.watch.input_of(sequence, index))
            elif edge.parameter and made.role == "activation_gradient":
                source = made.source
                role = "weight_gradient"
                if made.function == "cast" and source is not None and source.step == made.step:
                    self._label(source, Label("weight_gradient", edge.parameter, source.name, source.scale))
                    role = "accumulated_gradient"
                self._label(made, Label(role, edge.parameter, made.name, made.scale))

    # The scaler.

    def scaler_of_call(self) -> Any:
        """The gradient scaler that multiplies the loss just now, or None."""
        frame: Optional[FrameType] = sys._getframe(1)
        for _ in range(12):
            if frame is None:
                return None
            if frame.f_code.co_filename == _GRAD_SCALER:
                if frame.f_code.co_name not in ("scale", "apply_scale"):
                    return None  # it steps or unscales, and hooks of the user's may multiply there
                while frame is not None and "self" not in frame.f_locals:
                    frame = frame.f_back
                return None if frame is None else frame.f_locals["self"]
            frame = frame.f_back
        return None

    def scale_in_force(self, scaler: Any) -> float:
        scale = float(scaler.get_scale())
        self.steps.scale(scale)
        return scale

    @staticmethod
    def number_in(tensor: torch.Tensor) -> float:
        return float(tensor.detach().item())

    def unscaled(self, overflowed: bool) -> bool:
        """The scaler looked at the gradients of one optimizer; says whether it unscaled them."""
        optimizer = None
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None:
            if frame.f_code is _CHECK:
                return False
            if optimizer is None and frame.f_code.co_filename == _GRAD_SCALER:
                optimizer = frame.f_locals.get("optimizer")
            frame = frame.f_back
        if optimizer is not None:
            self.takes_turn(optimizer)
            self.steps.rate(updates.number(optimizer.param_groups[0]["lr"]))
            if overflowed:
                self.steps.overflowed.add(id(optimizer))
        return True

    def scaler_updated(self, bound: Dict[str, Any]) -> None:
        if self.steps.open:
            self.steps.scaler_updated(updates.number(bound["self"]))

    def gradient_before_clipping(self, made: Made, gradient: torch.Tensor) -> None:
        if made.parameter not in self.steps.unclipped:
            self.steps.unclipped[made.parameter] = updates.squares([gradient])[0] / made.scale**2

    # Optimizers.

    def _concerns(self, optimizer: Any) -> bool:
        if any(each is optimizer for each in self.steps.expected):
            return True
        names = [self.name_of(parameter) for parameter, _ in updates.parameters_of(optimizer)]
        return any(name is not None for name in names)

    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        with self.guard(), torch._C._DisableTorchDispatch():
            if self.failed or self.paused or not self._concerns(optimizer):
                return
            if self.steps.optimizing and _optimizers_stepping() == 1:  # the one before did not end, for it raised
                self.steps.optimizing = 0
            self.steps.optimizing += 1
            if self.steps.optimizing == 1:
                self.takes_turn(optimizer)
                has_closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None
                self._copies[id(optimizer)] = updates.copies_before(optimizer, has_closure)
                self.steps.quiet = not has_closure

    def optimizer_ends(self, optimizer: Any) -> None:
        with self.guard(), torch._C._DisableTorchDispatch():
            if self.failed or self.paused or not self._concerns(optimizer) or self.steps.optimizing == 0:
                return
            self.steps.optimizing -= 1
            if self.steps.optimizing:  # a step() that another one called, as of a class that extends an optimizer
                return
            self.steps.quiet = False
            copies = self._copies.pop(id(optimizer), None)
            if copies is None or not self.steps.open:
                return
            found, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
            skipped = found is not None and updates.number(found) > 0
            factor = 1.0 if scale is None else updates.number(scale)
            rate = updates.number(optimizer.param_groups[0]["lr"])
            before = after = 0.0
            for copy in copies:
                gradient = copy.gradient if copy.gradient is not None else copy.parameter.grad
                if gradient is None or gradient.layout is not torch.strided:
                    continue
                name = self.name_of(copy.parameter) or ""
                square = updates.squares([gradient])[0] / factor**2
                after += square
                before += self.steps.unclipped.pop(name, square)
                if not skipped:
                    self._update(optimizer, copy, gradient if factor == 1.0 else gradient / factor)
            self.steps.norms(before, after)
            self.steps.step_taken(optimizer, rate, skipped)

    def _update(self, optimizer: Any, copy: updates.Copy, gradient: torch.Tensor) -> None:
        parameter, group = copy.parameter, copy.group
        if unreadable(parameter) or parameter.dtype not in DTYPES:
            return
        name, function = self.name_of(parameter) or "", updates.function_of(optimizer)
        wide = torch.float64 if parameter.dtype is torch.float64 else torch.float32
        asked = updates.asked_for(optimizer, copy, gradient)
        update = None if asked is None else asked.to(wide)
        states = [(state, value) for state, value in updates.states_of(optimizer, parameter) if value.dtype in DTYPES]
        read = [parameter] + ([parameter.grad] if parameter.grad is not None else []) + [value for _, value in states]
        inputs, unknown = [], False
        for index, tensor in enumerate(read):
            found = self.values.find(tensor)
            if found.last is not None and found.last.step >= 0:
                inputs.append(found.last.value)
            elif index < 2 and not found.complete:
                unknown = True
        outputs = [(0, parameter, Label("weight", name))]
        outputs += [(slot, value, Label("optimizer_state", name, state)) for slot, (state, value) in enumerate(states, 1)]
        if update is not None:
            outputs.append((len(outputs), update, Label("update", name)))
        call = Call(function if function != "assign" else type(optimizer).__name__, "optimizer", function,
                    module=self.module_of(name), parameter=name, inputs=inputs, inputs_unknown=unknown)
        made = self.mode.emit(call, outputs)
        if not made or made[0].value.slot != 0:
            return
        try:
            self.recorder.set_update(made[0].op, 0, updates.number(group["lr"]), on_host(copy.before), on_host(parameter),
                                     on_host(gradient), None if update is None else on_host(update))
        except Refused as refusal:
            self.refused(str(refusal))


def _optimizers_stepping() -> int:
    """How many calls of step() are on the stack."""
    count = 0
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        count += frame.f_code.co_filename == _OPTIMIZER and frame.f_code.co_name == "wrapper"
        frame = frame.f_back
    return count


def _leaves(value: Any) -> List[torch.Tensor]:
    if isinstance(value, dict):
        return [each for item in value.values() for each in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in _leaves(item)]
    return tensors_in(value)


def warn(text: str) -> None:
    """A warning that raises nothing, whatever the filters of warnings are."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Warning:
        print(text, file=sys.stderr)
