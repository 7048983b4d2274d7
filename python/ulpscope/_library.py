"""The C interface of the recorder (recorder/ulpscope.h), called through ctypes."""

import ctypes
import os
import shutil
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

ABI = 1
REFUSED = 1

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_u8, _u32, _u64, _i32, _i64, _double = (
    ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_double)
_text, _pointer = ctypes.c_char_p, ctypes.c_void_p


class Error(Exception):
    """Something that the library or the program refused, in one line."""


class Refused(Error):
    """A call that says something that cannot be; the recording is as it was."""


class Value(NamedTuple):
    """Output `slot` of the op with the id `op`."""

    op: int
    slot: int


NOTHING = Value(0, 0)  # in the place of an output that was not recorded


class Label(NamedTuple):
    """The part that an output plays."""

    role: str = "activation"
    parameter: str = ""
    name: str = ""
    scale: float = 1.0


class Call(NamedTuple):
    """An op call, described before it runs."""

    name: str
    phase: str
    function: str = "other"
    kind: str = ""
    module: str = ""
    attributes: str = ""
    location: str = ""
    parameter: str = ""
    forward_id: int = 0
    inputs: Sequence[Value] = ()
    inputs_unknown: bool = False
    product: Optional[Tuple[int, int, int, int, int]] = None


class Tensor(NamedTuple):
    """A tensor of the host's memory; `owner` keeps that alive."""

    data: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    owner: Any = None


class Node(NamedTuple):
    """A node of how an element came about: the element itself, whose parent and operand are -1, or what it was computed from."""

    made_by: Value
    shape: Tuple[int, ...]
    element: int
    value: float
    parent: int
    operand: int
    term: int
    terms: int
    overwritten: bool


class StepResult(NamedTuple):
    """The results of a step; None: not known."""

    loss: Optional[float] = None
    learning_rate: Optional[float] = None
    scales: Optional[Tuple[float, float]] = None
    norms: Optional[Tuple[float, float]] = None
    seconds: float = 0.0
    peak_memory: int = 0
    skipped: bool = False


class _Run(ctypes.Structure):
    _fields_ = [("size", _u32), ("run_id", _text), ("producer", _text), ("producer_version", _text), ("name", _text),
                ("precision", _text), ("backend", _text), ("machine", _text), ("seed", _u64), ("rank", _i32),
                ("world_size", _i32), ("dynamic_loss_scale", _u8), ("growth_factor", _double), ("backoff_factor", _double),
                ("growth_interval", _i64)]


class _Options(ctypes.Structure):
    _fields_ = [("size", _u32), ("path", _text), ("level", _text), ("every", _i64), ("modules", _text), ("ops", _text),
                ("phases", _text), ("max_bytes", _u64), ("stop_on", _text), ("overwrite", _u8)]


class _Status(ctypes.Structure):
    _fields_ = [("size", _u32), ("failed", _u8), ("stop", _u8), ("bytes", _u64), ("committed_steps", _u64),
                ("tensor_rows", _u64), ("refused", _u64), ("queue_fill", _double), ("why", ctypes.c_char * 512)]


class _Value(ctypes.Structure):
    _fields_ = [("op", _u64), ("slot", _u32)]


class _Step(ctypes.Structure):
    _fields_ = [("size", _u32), ("known", _u32), ("loss", _double), ("learning_rate", _double), ("scale_before", _double),
                ("scale_after", _double), ("gradient_norm", _double), ("clipped_gradient_norm", _double),
                ("seconds", _double), ("peak_memory", _u64), ("skipped", _u8)]


class _Call(ctypes.Structure):
    _fields_ = [("size", _u32), ("name", _u32), ("module", _u32), ("attributes", _u32), ("location", _u32),
                ("parameter", _u32), ("phase", _i32), ("function", _i32), ("kind", _i32), ("id", _u64), ("forward_id", _u64),
                ("inputs", ctypes.POINTER(_Value)), ("inputs_count", _u32), ("inputs_unknown", _u8),
                ("product", ctypes.POINTER(_i64))]


class _Tensor(ctypes.Structure):
    _fields_ = [("size", _u32), ("data", _pointer), ("dtype", _i32), ("rank", _i32), ("shape", ctypes.POINTER(_i64)),
                ("strides", ctypes.POINTER(_i64))]


class _Label(ctypes.Structure):
    _fields_ = [("size", _u32), ("role", _i32), ("parameter", _u32), ("name", _u32), ("scale", _double)]


class _Statistics(ctypes.Structure):
    _fields_ = [("size", _u32), ("known", _u8), ("before_rounding", _u8), ("rounding_known", _u8), ("count", _u64),
                ("nan", _u64), ("positive_infinity", _u64), ("negative_infinity", _u64), ("zeros", _u64), ("negatives", _u64),
                ("smallest", _double), ("largest", _double), ("sum", _double), ("sum_of_squares", _double),
                ("bins", _u64 * 255), ("below_range", _u64), ("above_range", _u64), ("flushed", _u64), ("subnormal", _u64),
                ("inexact_subnormal", _u64), ("overflowed", _u64), ("rescued", _u64), ("saturated", _u64)]


class _Node(ctypes.Structure):
    _fields_ = [("size", _u32), ("operand", _i32), ("parent", _i64), ("term", _i64), ("terms", _i64), ("made_by", _Value),
                ("shape", ctypes.POINTER(_i64)), ("rank", _i32), ("overwritten", _u8), ("element", _i64), ("value", _double)]


class _Update(ctypes.Structure):
    _fields_ = [("size", _u32), ("learning_rate", _double), ("before", ctypes.POINTER(_Tensor)),
                ("after", ctypes.POINTER(_Tensor)), ("gradient", ctypes.POINTER(_Tensor)),
                ("update", ctypes.POINTER(_Tensor))]


_SIGNATURES = {
    "get_status": [_pointer, ctypes.POINTER(_Status)],
    "open": [ctypes.POINTER(_Run), ctypes.POINTER(_Options), ctypes.POINTER(_pointer)],
    "close": [_pointer],
    "flush": [_pointer],
    "intern": [_pointer, _text, ctypes.c_size_t, ctypes.POINTER(_u32)],
    "setting": [_pointer, _text, _text, _i32, ctypes.c_int],
    "metric": [_pointer, _text, _i32, _double],
    "note": [_pointer, _text],
    "warning": [_pointer, _text],
    "begin_step": [_pointer, _u64],
    "begin_pass": [_pointer, _i32, _u32, _u32],
    "end_step": [_pointer, ctypes.POINTER(_Step)],
    "begin_op": [_pointer, ctypes.POINTER(_Call), ctypes.POINTER(_u64), ctypes.POINTER(_u64)],
    "end_op": [_pointer, _u64],
    "drop_op": [_pointer, _u64],
    "output": [_pointer, _u64, _u32, ctypes.POINTER(_Tensor), ctypes.POINTER(_Label), ctypes.POINTER(_Statistics)],
    "set_label": [_pointer, _u64, _u32, ctypes.POINTER(_Label)],
    "set_gradient_of": [_pointer, _u64, _u32, _Value, _i32],
    "set_update": [_pointer, _u64, _u32, ctypes.POINTER(_Update)],
    "wants_capture": [_pointer, _u64, _u32, ctypes.POINTER(_u8)],
    "set_capture": [_pointer, _u64, _u32, ctypes.POINTER(_Node), _u32],
    "take_cast": [ctypes.POINTER(_Tensor), ctypes.POINTER(_Tensor), _double, ctypes.POINTER(_Statistics)],
}
_NAMES = ("phase", "role", "function", "kind", "setting_kind", "metric_kind", "dtype")


def find_library() -> str:
    """The path of the recorder's library."""
    given = os.environ.get("ULPSCOPE_LIBRARY")
    if given:
        return given
    beside = os.path.join(_FOLDER, "libulpscope.so")
    if os.path.exists(beside):
        return beside
    raise Error("libulpscope.so was not found: ULPSCOPE_LIBRARY may say where it is")


def find_program() -> str:
    """The path of the program `ulpscope`."""
    given = os.environ.get("ULPSCOPE_PROGRAM")
    if given:
        return given
    beside = os.path.join(_FOLDER, "bin", "ulpscope")
    if os.path.exists(beside):
        return beside
    found = shutil.which("ulpscope")
    if found is None:
        raise Error("the program ulpscope was not found: ULPSCOPE_PROGRAM may say where it is")
    return found


def load_library() -> ctypes.CDLL:
    """The library, with the types of its functions."""
    path = find_library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"libulpscope.so could not be loaded: {error}") from error
    library.ulpscope_abi.restype = _u32
    library.ulpscope_abi.argtypes = []
    if library.ulpscope_abi() != ABI:
        raise Error(f"{os.path.basename(path)} has interface {library.ulpscope_abi()}, and this package needs {ABI}")
    library.ulpscope_version.restype = _text
    library.ulpscope_last_error.restype = _text
    for name, types in _SIGNATURES.items():
        function = getattr(library, "ulpscope_" + name)
        function.argtypes, function.restype = types, ctypes.c_int
    for name in _NAMES:
        function = getattr(library, "ulpscope_" + name)
        function.argtypes, function.restype = [_text], _i32
    return library


def _structure(kind: Any, **values: Any) -> Any:
    return kind(size=ctypes.sizeof(kind), **values)


def _encoded(text: Optional[str]) -> Optional[bytes]:
    return text.encode("utf-8", "replace") if text else None


def _numbers(values: Sequence[int]) -> Any:
    return (_i64 * max(1, len(values)))(*values)


class Recorder:
    """A recording that is being written. Names stand for the numbers of enumerations. Errors are raised."""

    def __init__(self, run: Dict[str, Any], options: Dict[str, Any]) -> None:
        self._library = load_library()
        self._handle = _pointer()
        self._texts: Dict[str, int] = {"": 0}
        self._numbers: Dict[Tuple[str, str], int] = {}
        texts = {name: _encoded(value) if isinstance(value, str) else value for name, value in run.items()}
        paths = {name: _encoded(value) if isinstance(value, str) else value for name, value in options.items()}
        self._check(self._library.ulpscope_open(
            _structure(_Run, **texts), _structure(_Options, **paths), ctypes.byref(self._handle)))

    def close(self) -> None:
        """Ends the recording; a step that did not end is left out."""
        handle, self._handle = self._handle, _pointer()
        self._check(self._library.ulpscope_close(handle))

    def failure(self) -> str:
        """Why recording stopped, or an empty text."""
        status = _structure(_Status)
        self._check(self._library.ulpscope_get_status(self._handle, status))
        return status.why.decode("utf-8", "replace") if status.failed else ""

    def setting(self, name: str, value: str, kind: str, given: bool) -> None:
        self._check(self._library.ulpscope_setting(
            self._handle, _encoded(name), value.encode(), self._number("setting_kind", kind), int(given)))

    def metric(self, name: str, kind: str, value: float) -> None:
        self._check(self._library.ulpscope_metric(
            self._handle, _encoded(name), self._number("metric_kind", kind), value))

    def note(self, text: str) -> None:
        self._check(self._library.ulpscope_note(self._handle, _encoded(text)))

    def warning(self, text: str) -> None:
        self._check(self._library.ulpscope_warning(self._handle, _encoded(text)))

    def begin_step(self, number: int) -> None:
        self._check(self._library.ulpscope_begin_step(self._handle, number))

    def begin_pass(self, phase: str, micro_batch: int, loss: int) -> None:
        self._check(self._library.ulpscope_begin_pass(self._handle, self._number("phase", phase), micro_batch, loss))

    def end_step(self, result: StepResult) -> None:
        step = _structure(_Step, seconds=result.seconds, peak_memory=result.peak_memory, skipped=int(result.skipped))
        step.scale_before = step.scale_after = 1.0
        if result.loss is not None:
            step.known += 1
            step.loss = result.loss
        if result.learning_rate is not None:
            step.known += 2
            step.learning_rate = result.learning_rate
        if result.scales is not None:
            step.known += 4
            step.scale_before, step.scale_after = result.scales
        if result.norms is not None:
            step.known += 8
            step.gradient_norm, step.clipped_gradient_norm = result.norms
        self._check(self._library.ulpscope_end_step(self._handle, step))

    def begin_op(self, call: Call) -> Tuple[int, int]:
        """The call's number, by which it is told more of, and its id, by which others name its outputs."""
        described = _structure(_Call)
        described.name = self._text(call.name)
        described.module = self._text(call.module)
        described.attributes = self._text(call.attributes)
        described.location = self._text(call.location)
        described.parameter = self._text(call.parameter)
        described.phase = self._number("phase", call.phase)
        described.function = self._number("function", call.function)
        described.kind = self._number("kind", call.kind) if call.kind else -1
        described.forward_id = call.forward_id
        inputs = (_Value * max(1, len(call.inputs)))(*(_Value(*value) for value in call.inputs))
        described.inputs = inputs
        described.inputs_count = len(call.inputs)
        described.inputs_unknown = int(call.inputs_unknown)
        product = None if call.product is None else _numbers(call.product)
        if product is not None:
            described.product = product
        op, number = _u64(), _u64()
        self._check(self._library.ulpscope_begin_op(self._handle, described, ctypes.byref(op), ctypes.byref(number)))
        return op.value, number.value

    def end_op(self, op: int) -> None:
        self._check(self._library.ulpscope_end_op(self._handle, op))

    def drop_op(self, op: int) -> None:
        self._check(self._library.ulpscope_drop_op(self._handle, op))

    def output(self, op: int, slot: int, tensor: Tensor, label: Label, cast_from: Optional[Tensor] = None) -> None:
        """An output; of a cast, the values that were cast tell what its rounding did."""
        described, statistics = self._tensor(tensor), None
        if cast_from is not None:
            statistics = _structure(_Statistics)
            self._check(self._library.ulpscope_take_cast(self._tensor(cast_from), described, label.scale, statistics))
        self._check(self._library.ulpscope_output(self._handle, op, slot, described, self._label(label), statistics))

    def set_label(self, op: int, slot: int, label: Label) -> None:
        self._check(self._library.ulpscope_set_label(self._handle, op, slot, self._label(label)))

    def set_gradient_of(self, op: int, slot: int, value: Value, input_index: int) -> None:
        self._check(self._library.ulpscope_set_gradient_of(self._handle, op, slot, _Value(*value), input_index))

    def set_update(self, op: int, slot: int, learning_rate: float, before: Tensor, after: Tensor,
                   gradient: Optional[Tensor], update: Optional[Tensor]) -> None:
        tensors = [None if each is None else ctypes.pointer(self._tensor(each)) for each in (before, after, gradient, update)]
        described = _structure(_Update, learning_rate=learning_rate)
        described.before, described.after, described.gradient, described.update = tensors
        self._check(self._library.ulpscope_set_update(self._handle, op, slot, described))

    def wants_capture(self, op: int, slot: int) -> bool:
        """Whether an output holds NaN or Inf that no input of its call had."""
        wanted = _u8()
        self._check(self._library.ulpscope_wants_capture(self._handle, op, slot, ctypes.byref(wanted)))
        return bool(wanted.value)

    def set_capture(self, op: int, slot: int, nodes: Sequence[Node]) -> None:
        """How the first such element came about."""
        described = (_Node * len(nodes))()
        for to, node in zip(described, nodes):
            to.size, to.operand, to.parent, to.term, to.terms = ctypes.sizeof(_Node), node.operand, node.parent, node.term, node.terms
            to.made_by, to.shape, to.rank = _Value(*node.made_by), _numbers(node.shape), len(node.shape)
            to.overwritten, to.element, to.value = node.overwritten, node.element, node.value
        self._check(self._library.ulpscope_set_capture(self._handle, op, slot, described, len(nodes)))

    def _tensor(self, tensor: Tensor) -> _Tensor:
        described = _structure(_Tensor, data=tensor.data, dtype=self._number("dtype", tensor.dtype), rank=len(tensor.shape))
        described.shape = _numbers(tensor.shape)
        described.strides = _numbers(tensor.strides)
        return described

    def _label(self, label: Label) -> _Label:
        return _structure(_Label, role=self._number("role", label.role), parameter=self._text(label.parameter),
                          name=self._text(label.name), scale=label.scale)

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            data, interned = text.encode("utf-8", "replace"), _u32()
            self._check(self._library.ulpscope_intern(self._handle, data, len(data), ctypes.byref(interned)))
            number = self._texts[text] = interned.value
        return number

    def _number(self, enumeration: str, name: str) -> int:
        number = self._numbers.get((enumeration, name))
        if number is None:
            number = getattr(self._library, "ulpscope_" + enumeration)(name.encode())
            if number < 0:
                raise Error(f"the library knows no {enumeration.replace('_', ' ')} {name}")
            self._numbers[enumeration, name] = number
        return number

    def _check(self, code: int) -> None:
        if code == 0:
            return
        said = self._library.ulpscope_last_error().decode("utf-8", "replace")
        raise (Refused if code == REFUSED else Error)(said)
