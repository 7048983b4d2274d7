"""The C interface of recorder/ulpscope_aten.h, which makes calls of PyTorch's ops, through ctypes."""

import ctypes
import functools
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .._library import Error, Recorder, load_library
from .signals import holds_signals

_u8, _u32, _u64, _i32, _i64, _double = (
    ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_double)
_text, _pointer = ctypes.c_char_p, ctypes.c_void_p

INTERFACE = 8  # ULPSCOPE_ATEN_INTERFACE
IDLE, FORWARD, BACKWARD, ENDED = range(4)  # states of the training loop
OUTER, INNER, REPEATED = range(3)  # how a module stands to those that its thread is in
SGD, ADAM, UNKNOWN_RULE = range(3)
NOTHING, TENSOR, TENSORS, INTEGER, REAL, INTEGERS, TEXT, OTHER = range(8)  # kinds of arguments
STATISTICS, NUMBER, SQUARE, COUNTS_OF_UPDATE = range(1, 5)  # what is taken of a tensor on a device, and where in its row it stands
EDGES, ROUNDING_EDGES, ROUNDINGS, REALS, ROW = 517, 5, 518, 530, 534


class TensorStruct(ctypes.Structure):
    _fields_ = [("storage", _u64), ("storage_bytes", _u64), ("storage_data", _pointer), ("handle", _u64), ("data", _pointer),
                ("shape", ctypes.POINTER(_i64)), ("strides", ctypes.POINTER(_i64)), ("unreadable", _text), ("type", _i32),
                ("rank", _i32), ("is_present", _u8), ("is_on_host", _u8), ("requires_grad", _u8), ("is_view", _u8)]


class ArgumentStruct(ctypes.Structure):
    _fields_ = [("kind", _i32), ("first", _u32), ("count", _u32), ("integer", _i64), ("real", _double),
                ("integers", ctypes.POINTER(_i64)), ("text", _text)]


class ParameterStruct(ctypes.Structure):
    _fields_ = [("name", _text), ("is_tensor", _u8), ("is_written", _u8), ("is_keyword", _u8),
                ("default_value", ArgumentStruct)]


class SchemaStruct(ctypes.Structure):
    _fields_ = [("name", _text), ("parameters", ctypes.POINTER(ParameterStruct)), ("parameters_count", _u32),
                ("returns_alias", _u8), ("is_pointwise", _u8)]


class OpStruct(ctypes.Structure):
    _fields_ = [("schema", _u32), ("arguments", ctypes.POINTER(ArgumentStruct)), ("tensors", _pointer), ("results", _pointer), ("results_count", _u32), ("grad_enabled", _u8),
                ("is_accumulate_grad", _u8), ("task", _i64), ("node", _i64), ("made_node", _i64), ("node_name", _text),
                ("variable", _u64)]


class State(ctypes.Structure):
    """Where the training loop is; the library reads it at each op."""

    _fields_ = [("step", _i64), ("passes", _i64), ("state", _i32), ("optimizing", _i32), ("muted", _i32), ("paused", _i32),
                ("is_open", _u8), ("is_stopped", _u8), ("hashes_bits", _u8)]


class StartStruct(ctypes.Structure):
    _fields_ = [("is_found", _u8), ("is_nested", _u8), ("is_new", _u8), ("scale", _double)]


class BackwardStruct(ctypes.Structure):
    _fields_ = [("scale", _double), ("loss", _double), ("divisor", _double), ("later", _u32), ("has_loss", _u8)]


class CoverageStruct(ctypes.Structure):
    _fields_ = [("calls", _u64), ("timed_steps", _u64), ("timed_seconds", _double), ("recording_seconds", _double)]


class EdgeStruct(ctypes.Structure):
    _fields_ = [("exists", _u8), ("to_parameter", _u8), ("handle", _u64), ("sequence", _i64), ("slot", _i32)]


class UpdateStruct(ctypes.Structure):
    _fields_ = [("rule", _i32), ("optimizer", _u32), ("learning_rate", _double), ("weight_decay", _double),
                ("momentum", _double), ("first_decay", _double), ("second_decay", _double), ("epsilon", _double),
                ("maximize", _u8), ("nesterov", _u8), ("decoupled", _u8), ("is_stepwise", _u8), ("factor", _double),
                ("tensors", _pointer), ("count", _u32), ("states_count", _u32), ("state_names", ctypes.POINTER(_u32))]


class MeasureStruct(ctypes.Structure):
    _fields_ = [("kind", _i32), ("level", _u8), ("tensor", ctypes.POINTER(TensorStruct)), ("edges", _pointer),
                ("cast_from", ctypes.POINTER(TensorStruct)), ("rounding_edges", _pointer), ("before", ctypes.POINTER(TensorStruct)),
                ("update", ctypes.POINTER(TensorStruct)), ("gradient", ctypes.POINTER(TensorStruct)), ("factor", _double)]


class RowsStruct(ctypes.Structure):
    _fields_ = [("first", _u64), ("count", _u32)]


class AskedStruct(ctypes.Structure):
    _fields_ = [("rule", ctypes.POINTER(UpdateStruct)), *((name, ctypes.POINTER(TensorStruct)) for name in (
        "weight", "gradient", "first", "second", "steps")), ("count", _double)]


_RETAIN = ctypes.CFUNCTYPE(None, _pointer, _u64)
_IS_EXPIRED = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _u64)
_IS_CAPTURING = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(TensorStruct))
_MEASURE = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(MeasureStruct), ctypes.POINTER(RowsStruct))
_KEEP = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(TensorStruct), ctypes.POINTER(TensorStruct))
_ASK = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(AskedStruct), ctypes.POINTER(TensorStruct))
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, _pointer)
_ROW = ctypes.CFUNCTYPE(_pointer, _pointer, _u64)


class FunctionStruct(ctypes.Structure):
    _fields_ = [("sequence", _i64), ("name", _text), ("slot", _u32)]


_FUNCTION_OF = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(TensorStruct), ctypes.POINTER(FunctionStruct))


class AdapterStruct(ctypes.Structure):
    _fields_ = [("context", _pointer), ("retain", _RETAIN), ("is_expired", _IS_EXPIRED), ("release", _RETAIN),
                ("is_capturing", _IS_CAPTURING), ("measure", _MEASURE), ("wait", _WAIT), ("row", _ROW), ("keep", _KEEP), ("ask", _ASK),
                ("let_go", _RETAIN), ("function_of", _FUNCTION_OF)]


_SESSION = {
    "enter": ctypes.CFUNCTYPE(None, _pointer, ctypes.c_int),
    "backward": ctypes.CFUNCTYPE(None, _pointer, ctypes.c_int, ctypes.POINTER(StartStruct)),
    "backward_ended": ctypes.CFUNCTYPE(None, _pointer),
    "scale_of_call": ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(_double)),
    "unscaled": ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.c_int),
    "scaler_updated": ctypes.CFUNCTYPE(None, _pointer, _double),
    "scale_told": ctypes.CFUNCTYPE(None, _pointer, _double),
    "norms": ctypes.CFUNCTYPE(None, _pointer, _double, _double),
    "batch": ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _u32, _i64, _i64),
    "line": ctypes.CFUNCTYPE(_u32, _pointer),
    "refused": ctypes.CFUNCTYPE(None, _pointer, _text),
    "failed": ctypes.CFUNCTYPE(None, _pointer, _text),
}


class _SessionStruct(ctypes.Structure):
    _fields_ = [("context", _pointer), *_SESSION.items()]


_SIGNATURES: Dict[str, Tuple[List[Any], Any]] = {
    "open": ([ctypes.POINTER(AdapterStruct), ctypes.POINTER(_SessionStruct), _pointer, ctypes.POINTER(_pointer)], ctypes.c_int),
    "close": ([_pointer], None),
    "state_of": ([_pointer], ctypes.POINTER(State)),
    "record": ([_pointer, _pointer], None),
    "lock": ([_pointer], None),
    "unlock": ([_pointer], None),
    "name": ([_pointer, _text], _u32),
    "add_schema": ([_pointer, ctypes.POINTER(SchemaStruct)], _u32),
    "name_parameter": ([_pointer, _u64, _u32, _u32], None),
    "is_named": ([_pointer, _u64], ctypes.c_int),
    "fail": ([_pointer, _text], None),
    "before": ([_pointer, ctypes.POINTER(OpStruct)], None),
    "after": ([_pointer, ctypes.POINTER(OpStruct)], None),
    "begin_pass": ([_pointer, ctypes.c_int], None),
    "end_step": ([_pointer], None),
    "forget": ([_pointer], None),
    "settle": ([_pointer], None),
    "loss": ([_pointer, _u32], _double),
    "waits": ([_pointer], _u64),
    "lost": ([_pointer], _u64),
    "begin_module": ([_pointer, _u32, ctypes.c_int, ctypes.c_int, _i64], None),
    "begin_inner_module": ([_pointer, _u32, ctypes.c_int, _i64, ctypes.c_int], ctypes.c_int),
    "leave_modules": ([_pointer], None),
    "end_module": ([_pointer, _u32], None),
    "depth": ([_pointer], ctypes.c_int),
    "has_maker": ([_pointer, _pointer], ctypes.c_int),
    "source": ([_pointer, _pointer, _i32, _u32, _u32, _u32, ctypes.c_int], None),
    "inputs": ([_pointer, _pointer, _u32], None),
    "unsharded": ([_pointer, _pointer, _pointer], None),
    "delivered": ([_pointer, _pointer, _u32, _u32, _i64, ctypes.c_int], None),
    "begin_backward": ([_pointer, _pointer, _u32, ctypes.c_int, ctypes.POINTER(BackwardStruct)], None),
    "opaque": ([_pointer, _u32, _u32, _i64, _pointer, _u32, _pointer, ctypes.POINTER(_i64), ctypes.POINTER(_u32), _u32], None),
    "is_opaque": ([_pointer, _pointer, _u32], ctypes.c_int),
    "begin_function": ([_pointer, _text, _i64, _i64, _pointer, _u32], ctypes.c_int),
    "end_function": ([_pointer], None),
    "observe": ([_pointer, _u32, _double, _i64, _pointer], None),
    "handed_on": ([_pointer, _i64, _text, ctypes.POINTER(EdgeStruct), _pointer, _u32, _pointer, _u32], None),
    "end_backward": ([_pointer], None),
    "keep": ([_pointer, _pointer, _u32, ctypes.c_int], None),
    "updated": ([_pointer, ctypes.POINTER(UpdateStruct), ctypes.c_int, ctypes.POINTER(_double), ctypes.POINTER(_double)], None),
    "clear_norms": ([_pointer], None),
    "not_read": ([_pointer, _u32, ctypes.POINTER(_text), ctypes.POINTER(_u64)], ctypes.c_int),
    "unmapped": ([_pointer, _u32, ctypes.POINTER(_text), ctypes.POINTER(_u64)], ctypes.c_int),
    "coverage_of": ([_pointer, ctypes.POINTER(CoverageStruct)], None),
}


# Short ones, called in every step by a thread that has the tracker's lock: Python's lock is kept over them, since leaving it and taking
# it back takes longer than they do.
_SHORT = ("unlock", "begin_pass", "begin_module", "begin_inner_module", "is_opaque", "begin_backward", "clear_norms")


def _nothing(*_: Any) -> int:
    """In the place of functions of a library that knows the recording no longer."""
    return 0


class Tracker:
    """The library's knowledge of a recording. Methods are the functions of ulpscope_aten.h."""

    def __init__(self, adapter: AdapterStruct, session: Any, calls: Optional[ctypes.Structure]) -> None:
        self.library = load_library()
        self._short = ctypes.PyDLL(self.library._name)
        self.library.ulpscope_aten_interface.restype = _u32
        interface = self.library.ulpscope_aten_interface()
        if interface != INTERFACE:
            raise Error(f"{os.path.basename(self.library._name)} has interface {interface} for PyTorch, and this package needs {INTERFACE}")
        for name, (arguments, result) in _SIGNATURES.items():
            for library in (self.library, self._short):
                function = getattr(library, "ulpscope_aten_" + name)
                function.argtypes, function.restype = arguments, result
        self._functions: List[str] = []  # that were asked for
        self._names: Dict[str, int] = {"": 0}
        # The library calls these as long as the tracker is open.
        self._kept = (adapter, calls, [kind(holds_signals(getattr(session, "on_" + name))) for name, kind in _SESSION.items()])
        described = _SessionStruct(None, *self._kept[2])
        self.handle = _pointer()
        given = None if calls is None else ctypes.addressof(calls)
        if self.library.ulpscope_aten_open(adapter, described, given, ctypes.byref(self.handle)) != 0:
            raise Error("libulpscope.so has no memory for a recording")
        self.state: State = self.library.ulpscope_aten_state_of(self.handle).contents

    def close(self) -> None:
        """Frees what the library knows; nothing may be called afterwards."""
        handle, self.handle = self.handle, _pointer()
        for name in self._functions:
            setattr(self, name, _nothing)
        self.state = State(step=-1, is_stopped=1)
        self.library.ulpscope_aten_close(handle)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._short if name in _SHORT else self.library, "ulpscope_aten_" + name)
        call = functools.partial(function, self.handle) if self.handle else _nothing
        setattr(self, name, call)
        self._functions.append(name)
        return call

    def record(self, recorder: Any) -> None:
        """From here on, calls are told to the recorder."""
        handle = recorder._handle if isinstance(recorder, Recorder) else None
        self.library.ulpscope_aten_record(self.handle, handle)

    def name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = self.library.ulpscope_aten_name(self.handle, text.encode("utf-8", "replace"))
        return number

    def counts(self, what: str) -> Iterator[Tuple[str, int]]:
        """The entries of not_read and unmapped."""
        function, kind, count = getattr(self.library, "ulpscope_aten_" + what), _text(), _u64()
        index = 0
        while function(self.handle, index, ctypes.byref(kind), ctypes.byref(count)):
            yield (kind.value or b"").decode(), count.value
            index += 1
