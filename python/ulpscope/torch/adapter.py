"""The ways in which ops of PyTorch are seen: each tells a tracker of them."""

import ctypes
import os
import sys
from types import FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

from .tracker import AdapterStruct, TensorStruct

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_WRAPPERS = ("contextlib.py", "functools.py")


class Unavailable(Exception):
    """Why the library for this version of PyTorch cannot be had, in a line."""


class Described(NamedTuple):
    """Tensors as the library reads them, one behind the other; `owner` keeps their memory."""

    address: int
    count: int
    owner: Any

    def at(self, index: int) -> int:
        """The address of one of them."""
        return self.address + index * _SIZE

    def is_readable(self, index: int) -> bool:
        """Whether a tensor's memory is read."""
        return not TensorStruct.from_address(self.at(index)).unreadable


_SIZE = ctypes.sizeof(TensorStruct)


class Adapter:
    """What both ways have in common: how tensors are described, and how a backward pass is followed."""

    name = ""
    versions_behind = 0  # by how much the version of a tensor grows once the op that wrote it was told
    structure: AdapterStruct
    fail: Callable[[BaseException], None]  # ends the recording
    rests = False  # an optimizer steps, without a closure: ops are not looked at

    def begin(self, tracker: Any) -> None:
        """Begins to look at ops, in this thread."""
        raise NotImplementedError

    def end(self) -> None:
        """Looks at ops no longer."""
        raise NotImplementedError

    def rest(self, rests: bool) -> None:
        """Begins to rest, or looks at ops again."""
        self.rests = rests

    def can_end(self) -> bool:
        """Whether end() may be called just now."""
        return True

    def is_suspended(self) -> bool:
        """Whether PyTorch has put away just now what looks at ops, for a while."""
        return False

    def close(self) -> None:
        """Frees what the adapter holds, when the library knows the recording no longer."""

    def describe(self, tensors: Sequence[Any]) -> Described:
        """Tensors, and places in which there is none: anything else stands there."""
        raise NotImplementedError

    def begin_inner_module(self, name: int, is_compiled: bool) -> bool:
        """Begins the module whose name has that number, if it is in another; False, and it does not, where more is to be done."""
        return False

    def end_module(self, name: int, output: int) -> bool:
        """Ends the module whose name has that number and that returns the tensor of that address alone; False, and it goes on, where
        more is to be done."""
        return False

    def follow(self, roots: List[torch.Tensor]) -> bool:
        """Looks at what the nodes below the roots hand on; says whether a named parameter is among them."""
        raise NotImplementedError

    def release(self) -> None:
        """Looks no longer."""
        raise NotImplementedError


_shown: Dict[str, str] = {}  # by file: how its lines are named, or an empty text where they are not


def _show(path: str) -> str:
    whole = os.path.normpath(path)
    try:
        whole = os.path.abspath(path)
        below = os.path.relpath(whole)
    except (OSError, ValueError):  # the working folder is gone, or the file is on another drive
        below = os.pardir
    if path.startswith("<frozen") or whole.startswith((_TORCH, _PACKAGE)) or os.path.basename(path) in _WRAPPERS:
        return ""
    return os.path.basename(path) if below.startswith(os.pardir) else below


def line_of_user() -> str:
    """The innermost line outside of torch and of this package."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        shown = _shown.get(path)
        if shown is None:
            shown = _shown[path] = _show(path)
        if shown:
            return f"{shown}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
