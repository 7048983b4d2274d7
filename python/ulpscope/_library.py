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
                ("phases", _text), ("max_bytes", _u64), ("stop_on", _text), ("overwrite", _u8), ("keep_last", _i64),
                ("after", _i64), ("on", _text)]


class _Status(ctypes.Structure):
    _fields_ = [("size", _u32), ("failed", _u8), ("stop", _u8), ("bytes", _u64), ("committed_steps", _u64),
                ("tensor_rows", _u64), ("refused", _u64), ("queue_fill", _double), ("why", ctypes.c_char * 512)]


class _Step(ctypes.Structure):
    _fields_ = [("size", _u32), ("known", _u32), ("loss", _double), ("learning_rate", _double), ("scale_before", _double),
                ("scale_after", _double), ("gradient_norm", _double), ("clipped_gradient_norm", _double),
                ("seconds", _double), ("peak_memory", _u64), ("skipped", _u8)]


class _Data(ctypes.Structure):
    _fields_ = [("size", _u32), ("number", _u32), ("name", _text), ("part", _text), ("file", _text), ("inside", _text),
                ("columns", _text), ("first_sample", _u64), ("samples", _u64), ("first_row", _u64), ("row_step", _u64),
                ("first_byte", _u64), ("byte_step", _u64)]


_SIGNATURES = {
    "get_status": [_pointer, ctypes.POINTER(_Status)],
    "open": [ctypes.POINTER(_Run), ctypes.POINTER(_Options), ctypes.POINTER(_pointer)],
    "close": [_pointer],
    "flush": [_pointer],
    "setting": [_pointer, _text, _text, _i32, ctypes.c_int],
    "source": [_pointer, ctypes.POINTER(_Data)],
    "batch": [_pointer, _u32, ctypes.POINTER(_i64), ctypes.c_size_t],
    "metric": [_pointer, _text, _i32, _double],
    "note": [_pointer, _text],
    "warning": [_pointer, _text],
    "begin_step": [_pointer, _u64],
    "leave_out_ops": [_pointer],
    "trigger": [_pointer, _text],
    "begin_pass": [_pointer, _i32, _u32, _u32],
    "end_step": [_pointer, ctypes.POINTER(_Step)],
}
_NAMES = ("phase", "role", "setting_kind", "metric_kind")


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
    for folder in os.get_exec_path():
        found = shutil.which("ulpscope", path=folder)
        if found is not None and not _is_ours(found):
            return found
    raise Error("the program ulpscope was not found: ULPSCOPE_PROGRAM may say where it is")


def _is_ours(path: str) -> bool:
    """Whether a program is the script of this package, which would look for the program again."""
    try:
        with open(path, "rb") as file:
            return b"ulpscope.__main__" in file.read(4096)
    except OSError:
        return False


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
        return self._status("failed")

    def stop_reason(self) -> str:
        """Why what stop_on asked for happened, or an empty text."""
        return self._status("stop")

    def _status(self, member: str) -> str:
        status = _structure(_Status)
        self._check(self._library.ulpscope_get_status(self._handle, status))
        return status.why.decode("utf-8", "replace") if getattr(status, member) else ""

    def setting(self, name: str, value: str, kind: str, given: bool) -> None:
        self._check(self._library.ulpscope_setting(
            self._handle, _encoded(name), value.encode(), self._number("setting_kind", kind), int(given)))

    def source(self, number: int, name: str, samples: int) -> None:
        """A data set; where its samples lie is not known."""
        self._check(self._library.ulpscope_source(
            self._handle, _structure(_Data, number=number, name=_encoded(name), samples=samples)))

    def batch(self, source: int, samples: Sequence[int]) -> None:
        """The samples of the pass that goes on."""
        self._check(self._library.ulpscope_batch(self._handle, source, _numbers(samples), len(samples)))

    def metric(self, name: str, kind: str, value: float) -> None:
        self._check(self._library.ulpscope_metric(
            self._handle, _encoded(name), self._number("metric_kind", kind), value))

    def note(self, text: str) -> None:
        self._check(self._library.ulpscope_note(self._handle, _encoded(text)))

    def warning(self, text: str) -> None:
        self._check(self._library.ulpscope_warning(self._handle, _encoded(text)))

    def begin_step(self, number: int) -> None:
        self._check(self._library.ulpscope_begin_step(self._handle, number))

    def leave_out_ops(self) -> None:
        """No op of the step that goes on is recorded."""
        self._check(self._library.ulpscope_leave_out_ops(self._handle))

    def trigger(self, why: str) -> None:
        """Makes a recording that holds steps write them."""
        self._check(self._library.ulpscope_trigger(self._handle, _encoded(why)))

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
