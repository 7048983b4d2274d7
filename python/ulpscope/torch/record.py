"""Recording of a training loop: hooks on the model, optimizers and backward passes, around the dispatch mode."""

import contextlib
import datetime
import functools
import hashlib
import os
import platform
import secrets
import sys
import threading
import weakref
from collections import Counter
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type, Union

import torch
from torch.nn.modules.module import register_module_module_registration_hook, register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .._library import Recorder, load_library
from .._options import METRIC_KINDS, Options, may_be_trace
from .._report import recorded, tell
from .choice import choose
from .given import listed_optimizers, named_models, unwrapped
from .guard import warn
from .sampling import Sampling
from .session import COVERAGE, Session
from .signals import Signals

_WAIT_FOR_RANK_0 = datetime.timedelta(seconds=30)
_shared: "Counter[str]" = Counter()  # recordings that began, by the names of their paths


class Recording:
    """A recording that goes on until its block is left, or close() is called."""

    tells_end = True  # what became of the trace is told here, and not by who began the recording

    def __init__(self, path: Union[str, "os.PathLike[str]"], model: Any, optimizer: Any = None, scaler: Any = None, *,
                 make_recorder: Callable[..., Any] = Recorder, **options: Any) -> None:
        chosen = Options(**options)
        triggers, signals = chosen.triggers()
        if scaler is not None and not (hasattr(scaler, "is_enabled") and hasattr(scaler, "get_scale")):
            raise TypeError(f"scaler is no GradScaler: {type(scaler).__name__}")
        given, optimizers = named_models(model), listed_optimizers(optimizer)
        models = [(prefix, unwrapped(each)) for prefix, each in given]
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path is no str and no os.PathLike: {type(path).__name__}")
        named = os.fspath(path)
        if not isinstance(named, str) or not named or "\0" in named:
            raise ValueError(f"path is no name of a file: {named!r}")
        path, run = _of_rank(os.path.abspath(named))
        self._given = named
        if make_recorder is Recorder:
            load_library()
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{folder} is no folder, so that {os.path.basename(path)} cannot be written")
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder; expected the name of a file in it")
        if not chosen.overwrite and os.path.exists(path):
            raise FileExistsError(f"{path} exists; overwrite=True replaces it")
        if os.path.isfile(path) and not may_be_trace(path):
            raise FileExistsError(f"{path} is no trace, so that none replaces it; remove it first")
        run.update(producer="torch", producer_version=torch.__version__, name=chosen.name, precision=chosen.precision,
                   backend=_device_of(models), machine=_machine(), seed=torch.initial_seed() & (2**64 - 1))
        written = dict(path=path, level=chosen.level, every=chosen.every, modules=chosen.modules, ops=chosen.ops, phases=chosen.phases,
                       max_bytes=chosen.max_bytes, overwrite=int(chosen.overwrite), stop_on=chosen.stop_on, keep_last=chosen.keep_last,
                       after=chosen.after, on=triggers)
        self._signals = Signals(signals if chosen.keep_last else [], self)
        self.path = path
        seen_by, way = choose(chosen.adapter)
        try:
            self._session = Session(models, optimizers, scaler, written, run, chosen.accumulate, chosen.sample, chosen.first_step,
                                    make_recorder, seen_by, way)
        except BaseException:
            seen_by.close()
            raise
        if make_recorder is Recorder and (why := _why_unwritable(path)):
            self._session.refuse(f"{path} cannot be written: {why}")
        self._handles: List[Any] = []
        self._hooked: "weakref.WeakValueDictionary[int, torch.nn.Module]" = weakref.WeakValueDictionary()  # by id
        self._inner: List[Tuple[str, "weakref.ref[torch.nn.Module]"]] = []  # those that have hooks where ops are looked at
        self._exits = contextlib.ExitStack()
        self._closed = self._closes_soon = self._told_closed = False
        self._thread = threading.get_ident()
        _recordings.add(self)
        self._begin(given, models, chosen)

    def _begin(self, given: List[Tuple[str, torch.nn.Module]], models: List[Tuple[str, torch.nn.Module]], chosen: Options) -> None:
        try:
            self._hook(given, models, chosen)
        except BaseException:  # nothing is left behind by a recording that did not begin
            self._closed = True
            self._session.failed = "it did not begin"
            self._unhook()
            self._session.free()
            raise

    def _hook(self, given: List[Tuple[str, torch.nn.Module]], models: List[Tuple[str, torch.nn.Module]], chosen: Options) -> None:
        session = self._session
        session.sampling = Sampling(session, lambda: self._hook_inner(self._inner))
        self._signals.begin()
        if chosen.compile == "eager":
            self._exits.enter_context(torch.compiler.set_stance("force_eager"))
        # Within compiled code hooks of modules are not called: those of what torch.compile returned are. Others than those of the
        # models themselves are there where ops are looked at; in what is compiled, always: they decide how often that is.
        for prefix, model in given:
            if unwrapped(model) is not model:
                session.unseen["compiled_modules"] += 1
                self._handles += _hook_module(session, prefix, model)
        compiled = _compiled_in_place(models)
        if compiled:
            session.unseen["compiled_modules"] += len(compiled)
            session.notes.append("Modules that were compiled in place (`module.compile()`) were not looked into.")
        for pattern in session.unmatched(chosen.modules):
            text = f"modules has {pattern!r}, which fits no module of the model"
            warn(f"ulpscope: {text}: no op is recorded for it")
            session.notes.append(f"The option {text}.")
        self._hook_new(given, models)
        session.hook_new_modules = functools.partial(self._hook_new, given, models)
        for register in (register_module_parameter_registration_hook, register_module_module_registration_hook):
            self._handles.append(register(session.registered))
        self._handles.append(register_optimizer_step_pre_hook(
            lambda optimizer, args, kwargs: session.optimizer_begins(optimizer, args, kwargs)))
        self._handles.append(register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._optimizer_ends(optimizer)))
        session.sampling.begin()
        self._handles.append(session.samples.listen())

    def _hook_new(self, given: List[Tuple[str, torch.nn.Module]], models: List[Tuple[str, torch.nn.Module]]) -> None:
        """Hooks modules that have no hooks yet: all of them, and later those that the program put into the models."""
        # A hook on a module that was compiled in place would change what of it is compiled, and so its bits.
        compiled, inner = _compiled_in_place(models), []
        for (_, outer), (prefix, model) in zip(given, models):
            for name, module in self._session.modules_of(prefix, model):
                if id(module) in compiled or isinstance(module, torch.jit.ScriptModule) or self._hooked.get(id(module)) is module:
                    continue
                self._hooked[id(module)] = module
                if module is model or outer is not model:
                    self._handles += _hook_module(self._session, name, module)
                else:
                    inner.append((name, weakref.ref(module)))
        self._inner += inner
        self._session.sampling.add_hooks(lambda: self._hook_inner(inner))

    def _hook_inner(self, inner: List[Tuple[str, "weakref.ref[torch.nn.Module]"]]) -> List[Any]:
        return [handle for name, made in inner if (module := made()) is not None for handle in _hook_module(self._session, name, module)]

    def _unhook(self) -> None:
        """What looks at ops is the thread's that began; where another closes, it stays there and, muted, looks at nothing."""
        is_of_thread = threading.get_ident() == self._thread
        self._session.sampling.close(not is_of_thread)
        if is_of_thread:
            self._exits.close()
        for handle in self._handles:
            handle.remove()
        self._signals.end()

    def __enter__(self) -> "Recording":
        self._is_closed()
        return self

    def _is_closed(self) -> bool:
        """Says, once, that nothing more is recorded where the program uses a recording that is closed."""
        if self._closed and not self._told_closed:
            self._told_closed = True
            warn(f"ulpscope: the recording {self.path} is closed: nothing more is recorded in it")
        return self._closed

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is not None and not self._closed:
            self.trigger(f"{kind.__name__} left the recording")
            self._session.left_by(error)
        writes = self._session.recorder is not None  # else it is closed or another process's
        self.close()
        if writes and self.tells_end and not self.lost and not self._session.failed and kind is not None and not issubclass(kind, (SystemExit, GeneratorExit)):
            tell(recorded(self.path, self._given))

    def close(self) -> None:
        """Ends the recording; the file then has all that was recorded. Called by a signal's handler in the middle of what records, it takes
        effect with the optimizer's step, or when it is called again, as by the end of the block."""
        session = self._session
        if not self._closed and (_is_recording() or (session.sampling.is_looking and session.adapter.is_suspended())):
            self._closes_soon = True
            return
        self._close()

    def _optimizer_ends(self, optimizer: Any) -> None:
        self._session.optimizer_ends(optimizer)
        if self._closes_soon and not self._closed:
            self._close()

    def _close(self) -> None:
        if self._closed:
            if threading.get_ident() == self._thread and self._session.tracker.handle:  # where another thread closed it
                self._session.sampling.close(False)
                self._exits.close()
                self._session.free()
            return
        self._closed = True
        session = self._session
        session.tracker.state.is_stopped = 1
        self._unhook()
        try:
            session.close()
        except Exception as error:  # the program goes on
            if not session.failed:
                warn(f"ulpscope could not close {self.path}: {type(error).__name__}: {error}")
        if self.tells_end and self.lost:
            tell(self.lost)

    def step(self) -> None:
        """Ends the step, in loops whose weights no torch.optim.Optimizer changes."""
        if self._is_closed() or self._session.failed:
            return
        self._session.is_told_steps = True
        with self._session.guard():
            self._session.end_step()
            self._session.sampling.arrange()

    def trigger(self, why: str = "run.trigger() was called") -> None:
        """Makes a recording with keep_last write the rows that it holds, when the step that goes on ends."""
        if not isinstance(why, str):
            raise TypeError(f"why is no text: {type(why).__name__}")
        if self._is_closed() or self._session.failed:
            return
        with self._session.guard():
            self._session.trigger(why)

    @property
    def refusal(self) -> str:
        """Why nothing was recorded at all, or an empty text."""
        return self._session.refusal

    @property
    def lost(self) -> str:
        """Why no trace is there that was written, or an empty text."""
        return self._session.lost

    def leave(self) -> None:
        """The process is about to end: the file has all that was recorded, and a step that did not end is left out."""
        with contextlib.suppress(Exception):
            self._session.leave()

    @property
    def stop_requested(self) -> bool:
        """Whether what stop_on names has happened. Recording ended with that step, and training did not."""
        return bool(self._session.stop_reason)

    @property
    def stop_reason(self) -> str:
        """The event that stop_on names and that happened, or an empty text."""
        return self._session.stop_reason

    def metric(self, name: str, value: float, kind: str = "other") -> None:
        """A number of the step, as the accuracy of an evaluation."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a metric is no text: {name!r}")
        if name.startswith(COVERAGE):
            raise ValueError(f"names of metrics that begin with {COVERAGE!r} are the recording's own: {name!r}")
        if kind not in METRIC_KINDS:
            raise ValueError(f"kind is none of {', '.join(METRIC_KINDS)}: {kind}")
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"the value of metric {name} is no number: {type(value).__name__}") from error
        if self._is_closed() or self._session.failed:
            return
        with self._session.guard():
            self._session.open()
            self._session.recorder.metric(name, kind, number)

    def _observe(self, name: str, tensor: torch.Tensor, scale: float) -> None:
        """A tensor that the program alone sees, as an op of that name."""
        session = self._session
        at = session.tracker.state
        if self._closed or session.failed or at.muted or at.is_stopped:
            return
        with session.guard():
            session.observe(name, tensor, scale)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing in the block is recorded, and nothing is known of the values that are written in it."""
        session = self._session
        session.pause()
        try:
            yield
        finally:
            session.resume()


# These record in the middle of a program's own code; what of it runs between their frames, as a hook, does not matter.
_RECORDERS = tuple(os.path.join(os.path.dirname(__file__), name + ".py")
                   for name in ("adapter", "device", "fallback", "fast", "observe", "samples", "sampling", "session", "steps", "tracker", "updates"))
_OWN = (__file__, ("__call__", "step", "trigger", "metric"))  # of this file


def _is_recording() -> bool:
    """Whether this thread is in the middle of recording, as where the handler of a signal runs."""
    frame: Optional[FrameType] = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _RECORDERS or (code.co_filename == _OWN[0] and code.co_name in _OWN[1]):
            return True
        frame = frame.f_back
    return False


# Recordings that go on, for children of a fork: the file and its writer are the parent's.
_recordings: "weakref.WeakSet[Recording]" = weakref.WeakSet()


def recordings_of_this_thread() -> List[Recording]:
    """Recordings that go on, whose ops this thread runs."""
    in_backward = torch._C._current_graph_task_id() != -1
    return [each for each in _recordings if not each._closed and (in_backward or each._thread == threading.get_ident())]


def _leave_to_parent() -> None:
    for recording in list(_recordings):
        session = recording._session
        session.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _nobody() -> None:
    """Stands for a reference to a module where a hook is on none."""


class _Hook:
    """A hook on one module. A copy of that module, and a file that it is saved in, have one that does nothing: they are read
    without this package."""

    def __init__(self, session: Any, name: str, module: Optional[torch.nn.Module]) -> None:
        self._session = session
        # It may be called for another module: a shallow copy has its hooks.
        self._module: Callable[[], Optional[torch.nn.Module]] = _nobody if module is None else weakref.ref(module)
        self._name, self._number = name, 0 if session is None else session.tracker.name(name)
        self._is_compiled = module is not None and unwrapped(module) is not module

    def _is_seen(self, begins: bool) -> bool:
        """Whether the session follows a call."""
        session = self._session
        if session.tracker.state.paused:
            return False
        # Other threads evaluate the model, or prepare its data; but those of a backward pass compute parts of it again.
        if threading.get_ident() != session.thread and torch._C._current_graph_task_id() == -1:
            session.unseen["calls_of_other_threads"] += begins
            return False
        return True

    def __deepcopy__(self, memo: Any) -> "_Hook":
        return type(self)(None, "", None)

    def __reduce__(self) -> Tuple[Any, ...]:
        return functools.partial, (sys.audit, "ulpscope.hook")  # takes any arguments, and returns None


class _Begins(_Hook):
    _was_called = False  # in training

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or self._module() is not module:
            return
        session = self._session
        if not self._was_called and (torch.is_grad_enabled() or session.steps.is_forward()):
            self._was_called = True
            session.reached.module_called(self._name, module)
        if not session.adapter.begin_inner_module(self._number, self._is_compiled) and self._is_seen(True):
            state = session.tracker.state
            if not state.is_stopped and not state.muted:
                session.module_begins(self._number, self._is_compiled, args, kwargs)
        if session.parts:
            session.unsharded(self._name, module)


class _Ends(_Hook):
    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or self._module() is not module:
            return
        session = self._session
        if isinstance(output, torch.Tensor) and session.adapter.end_module(self._number, output._cdata):
            return
        if self._is_seen(False):
            session.module_ends(self._number, module, args, output)


def _compiled_in_place(models: List[Tuple[str, torch.nn.Module]]) -> Set[int]:
    """The ids of modules that are compiled in place, and of what is in them."""
    return {id(inside) for _, model in models for module in model.modules() if getattr(module, "_compiled_call_impl", None)
            for inside in module.modules()}


def _hook_module(session: Session, name: str, module: torch.nn.Module) -> List[Any]:
    return [module.register_forward_pre_hook(_Begins(session, name, module), with_kwargs=True),
            module.register_forward_hook(_Ends(session, name, module), always_call=True)]


def _why_unwritable(path: str) -> str:
    """Why the file cannot be written, or an empty text; it is left as it was. The recorder opens it with the first step."""
    is_there = os.path.exists(path)
    try:
        with open(path, "ab"):
            pass
        if not is_there:
            os.remove(path)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _device_of(models: List[Tuple[str, torch.nn.Module]]) -> str:
    return next((parameter.device.type for _, model in models for parameter in model.parameters()), "cpu")


def _machine() -> str:
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def _of_rank(path: str) -> Tuple[str, Dict[str, Any]]:
    """The file of this process; of a run of several, one in the folder `path`."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return path, {}
    rank, run_id = distributed.get_rank(), _run_id(path)
    os.makedirs(path, exist_ok=True)
    return os.path.join(path, f"rank{rank}.h5"), dict(run_id=run_id, rank=rank, world_size=distributed.get_world_size())


def _run_id(path: str) -> str:
    """A text that all processes of a run have, and no other run."""
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if elastic not in ("", "none"):  # torchrun without --rdzv-id says none
        whole = "\n".join((elastic, os.environ.get("TORCHELASTIC_RESTART_COUNT", ""), path))
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:32]
    return _shared_id(os.path.basename(path), torch.distributed.get_rank())


def _shared_id(name: str, rank: int) -> str:
    """The id that rank 0 makes, and gives to the others through the store of their process group. Nothing waits for ranks that do not
    record, but those for rank 0, for a while."""
    number, own = _shared[name], secrets.token_hex(16)
    _shared[name] += 1
    key = f"ulpscope/{name}/{number}"
    try:
        store = torch.distributed.distributed_c10d._get_default_store()
        if rank == 0:
            store.set(key, own)
            return own
        store.wait([key], _WAIT_FOR_RANK_0)
        return str(store.get(key).decode())
    except Exception as error:  # rank 0 does not record, or there is no such store
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        warn(f"ulpscope: rank {rank} got no id of the run from rank 0, so that its trace counts as a run of its own: {first}")
        return own
