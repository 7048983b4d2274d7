"""Ops seen by callbacks of PyTorch's own recording of functions, in C++: a library for the exact version of PyTorch, which comes with the
package or is compiled at the first use."""

import contextlib
import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from array import array
from typing import Any, BinaryIO, List, Sequence, Tuple

import torch

from .._report import tell
from . import device
from .adapter import Adapter, Described, Unavailable
from .signals import holds_signals
from .tracker import INTERFACE, AdapterStruct, State

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_fast")
_PREBUILT = os.path.join(os.path.dirname(_FOLDER), "prebuilt")
_SOURCE = os.path.join(_FOLDER, "record_function.cpp")
_REPOSITORY = os.path.join(_FOLDER, os.pardir, os.pardir, os.pardir, os.pardir, "recorder")
_pointer, _u32, _u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
# The library's functions, in this order.
_USED = ("add_schema", "before", "after", "begin_function", "end_function", "handed_on", "end_backward", "is_named", "begin_inner_module",
         "is_opaque", "end_module", "fail", "lock", "try_lock", "unlock")


def _version() -> str:
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _headers() -> str:
    """The folder of ulpscope_aten.h: the package's, or that of the repository."""
    for folder in (_FOLDER, _REPOSITORY):
        if os.path.exists(os.path.join(folder, "ulpscope_aten.h")):
            return folder
    raise Unavailable("ulpscope_aten.h is not in the package")


def _command(compiler: str, output: str) -> List[str]:
    root = os.path.dirname(os.path.abspath(torch.__file__))
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [*shlex.split(compiler), "-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
            "-I", _headers(), "-isystem", os.path.join(root, "include"), _SOURCE, "-o", output,
            "-L", os.path.join(root, "lib"), "-ltorch_cpu", "-lc10"]


def _cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "ulpscope")


def _key(compiler: str) -> str:
    digest = hashlib.sha256()
    sources = {os.path.join(_FOLDER, name) for name in os.listdir(_FOLDER) if name.endswith((".h", ".cpp"))}
    sources |= {os.path.join(_headers(), name) for name in ("ulpscope_aten.h", "ulpscope.h")}
    for path in sorted(sources, key=os.path.basename):
        with open(path, "rb") as file:
            digest.update(file.read())
    digest.update("\0".join((torch.__version__, str(torch.version.git_version), compiler, *_command(compiler, ""))).encode())
    return digest.hexdigest()[:16]


def _compiler() -> str:
    return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++") or ""


def build(output: str) -> None:
    """Compiles the library for the PyTorch that is installed, or takes what another process compiled meanwhile. Raises Unavailable where
    that does not work."""
    compiler = _compiler()
    if not compiler:
        raise Unavailable("no C++ compiler was found")
    folder = os.path.dirname(output)
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open(output + ".lock", "ab")
    except OSError as error:
        raise Unavailable(f"{folder} cannot be written: {error.strerror}") from error
    with lock:
        _wait_for(lock)
        if not os.path.exists(output):
            tell(f"compiling callbacks for torch {_version()} into {folder}, once")
            _compile(compiler, output)


def _wait_for(lock: BinaryIO) -> None:
    """Waits until no other process compiles. The system takes the lock from one that is killed; where a file system has no locks, each
    process compiles for itself."""
    with contextlib.suppress(OSError, ImportError):
        import fcntl  # which only POSIX has
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another process, which compiles callbacks for torch {_version()}")
            fcntl.flock(lock, fcntl.LOCK_EX)


def _compile(compiler: str, output: str) -> None:
    # Not in the cache, where a process that is killed would leave what it has: temporary files are cleared away by the system.
    try:
        with tempfile.TemporaryDirectory(prefix="ulpscope") as scratch:
            made = os.path.join(scratch, os.path.basename(output))
            done = subprocess.run(_command(compiler, made), capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                said = next((line for line in done.stderr.splitlines() if "error" in line), f"it ended with {done.returncode}")
                raise Unavailable(f"{compiler} could not compile it: {said.strip()}")
            _put(made, output)
    except OSError as error:
        raise Unavailable(f"it could not be compiled: {error}") from error


def _put(made: str, output: str) -> None:
    """Others find the whole file under its name, or none."""
    handle, private = tempfile.mkstemp(suffix=".so", dir=os.path.dirname(output))
    try:
        with open(made, "rb") as source, open(handle, "wb") as file:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(private, 0o755)
        os.replace(private, output)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(private)


def _prebuilt(folder: str) -> str:
    return os.path.join(folder, f"callbacks-{torch.__version__}-cxx11abi{int(torch._C._GLIBCXX_USE_CXX11_ABI)}.so")


def prebuild(folder: str) -> None:
    """Compiles the library for a package, which has that folder as torch/prebuilt."""
    os.makedirs(folder, exist_ok=True)
    _compile(_compiler(), _prebuilt(folder))


def find() -> str:
    """The path of the library for this version of PyTorch in the cache, where it is compiled if it has to be."""
    path = os.path.join(_cache(), f"libulpscope_torch_{_version()}_{_key(_compiler())}.so")
    if not os.path.exists(path):
        build(path)
    return path


_PYTHON = ("PyGILState_Check", "PyEval_SaveThread", "PyEval_RestoreThread")  # of Python itself, behind them


class _Functions(ctypes.Structure):
    _fields_ = [(name, _pointer) for name in _USED + _PYTHON + ("is_capturing",)]


# The address that the library knows a tensor by. The descriptor raises TypeError for anything that is no tensor.
_handle_of: Any = getattr(torch._C, "TensorBase")._cdata.__get__
_is_capturing = ctypes.CFUNCTYPE(ctypes.c_int)(holds_signals(lambda: device.is_capturing()))


_SIGNATURES = {
    "interface": ([], _u32),
    "open": ([], _pointer),
    "adapter": ([_pointer], ctypes.POINTER(AdapterStruct)),
    "take_host_as_device": ([ctypes.c_int], None),
    "begin": ([_pointer, _pointer, ctypes.POINTER(State), ctypes.POINTER(_Functions)], None),
    "end": ([_pointer], None),
    "rest": ([_pointer, ctypes.c_int], None),
    "close": ([_pointer], None),
    "describe": ([_pointer, _pointer, _u32], _pointer),
    "begin_inner_module": ([_pointer, _u32, ctypes.c_int], ctypes.c_bool),
    "end_module": ([_pointer, _u32, _u64], ctypes.c_bool),
    "follow": ([_pointer, _pointer, _u32], ctypes.c_int),
    "release": ([_pointer], None),
}


def _load(path: str) -> ctypes.PyDLL:
    try:
        # Python's lock is kept over its functions, which are short; one that has to wait for another thread leaves it.
        library = ctypes.PyDLL(path)
        for name, (arguments, result) in _SIGNATURES.items():
            function = getattr(library, "ulpscope_fast_" + name)
            function.argtypes, function.restype = arguments, result
    except (OSError, AttributeError) as error:
        raise Unavailable(f"it could not be loaded: {error}") from error
    if library.ulpscope_fast_interface() != INTERFACE:
        raise Unavailable("it is of another version of this package")
    return library


def _load_any() -> Tuple[ctypes.PyDLL, bool]:
    """The library, and whether it came with the package. One that came and does not fit is left."""
    prebuilt = _prebuilt(_PREBUILT)
    if os.path.exists(prebuilt):
        with contextlib.suppress(Unavailable):
            return _load(prebuilt), True
    return _load(find()), False


_OF_MODULES = ("begin_inner_module", "end_module")


class Fast(Adapter):
    """Callbacks in C++."""

    name = "callbacks in C++"

    def __init__(self) -> None:
        library, is_prebuilt = _load_any()
        if is_prebuilt:
            self.name = f"prebuilt {self.name}"
        self._library = library
        self._handle = library.ulpscope_fast_open()
        if not self._handle:
            raise Unavailable("four recordings go on already")
        for name in _OF_MODULES:  # each module calls them in each step: no Python stands between
            setattr(self, name, functools.partial(getattr(library, "ulpscope_fast_" + name), self._handle))
        self.structure = library.ulpscope_fast_adapter(self._handle).contents

    def begin(self, tracker: Any) -> None:
        functions = [getattr(tracker.library, "ulpscope_aten_" + name) for name in _USED]
        functions += [getattr(ctypes.pythonapi, name) for name in _PYTHON]
        functions.append(_is_capturing)
        addresses = (ctypes.cast(function, _pointer) for function in functions)
        self._library.ulpscope_fast_take_host_as_device(device.takes_host_as_device)
        self._library.ulpscope_fast_begin(self._handle, tracker.handle, tracker.state, _Functions(*addresses))

    def end(self) -> None:
        if self._handle:
            self._library.ulpscope_fast_end(self._handle)

    def rest(self, rests: bool) -> None:
        if self._handle and rests != self.rests:
            self._library.ulpscope_fast_rest(self._handle, rests)
        super().rest(rests)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            for name in _OF_MODULES:
                delattr(self, name)
            self._library.ulpscope_fast_close(handle)

    def describe(self, tensors: Sequence[Any]) -> Described:
        count = len(tensors)
        try:
            handles = array("Q", map(_handle_of, tensors))
        except TypeError:  # a place has no tensor
            handles = array("Q", [_handle_of(each) if isinstance(each, torch.Tensor) else 0 for each in tensors])
        return Described(self._library.ulpscope_fast_describe(self._handle, handles.buffer_info()[0], count), count, tensors)

    def follow(self, roots: List[torch.Tensor]) -> bool:
        handles = array("Q", map(_handle_of, roots))
        return bool(self._library.ulpscope_fast_follow(self._handle, handles.buffer_info()[0], len(roots)))

    def release(self) -> None:
        if self._handle:
            self._library.ulpscope_fast_release(self._handle)
