"""Signals while a recording goes on: those that make it write the rows that it holds, and handlers that may raise, as that of Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
from types import CodeType, FrameType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar, Union

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]
_Function = TypeVar("_Function", bound=Callable[..., Any])

# A process that has no handler of its own for these is not ended by them.
_OF_USERS = (signal.SIGUSR1, signal.SIGUSR2)

# Handlers of these raise where a program is to end, or a part of it that takes too long.
_MAY_RAISE = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)

# An exception as one of these begins or ends leaves behind what they should have restored, as PyTorch's no_grad().
_UNSAFE = ("__enter__", "__exit__", "__del__")

_holding: Set[CodeType] = set()


def holds_signals(function: _Function) -> _Function:
    """No handler of a signal is called while the function runs, but right behind it. What it raises would be lost where the library
    called the function, and taken for a failure of the recording elsewhere."""
    _holding.add(function.__code__)
    return function


def _is_held(frame: Optional[FrameType], names: Tuple[str, ...] = ()) -> bool:
    while frame is not None:
        if frame.f_code in _holding or frame.f_code.co_name in names:
            return True
        frame = frame.f_back
    return False


class Signals:
    """Handlers before those of the program, until end()."""

    def __init__(self, numbers: List[signal.Signals], recording: Any) -> None:
        if numbers and threading.current_thread() is not threading.main_thread():
            raise ValueError("on has a signal, and signals are for the main thread, which is not the one that records")
        self._numbers, self._recording = numbers, recording
        self._before: Dict[int, _Handler] = {}
        self._held: List[int] = []

    def begin(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handled = {number for number in _MAY_RAISE if callable(signal.getsignal(number))}
        for number in handled.union(self._numbers):
            with contextlib.suppress(ValueError):  # an interpreter within another program has no signals
                self._before[number] = signal.signal(number, self._received)

    def end(self) -> None:
        self._numbers = []
        if threading.current_thread() is not threading.main_thread():
            return  # theirs go on to be called
        for number, before in list(self._before.items()):
            if signal.getsignal(number) == self._received:  # else another handler calls this one
                signal.signal(number, signal.SIG_DFL if before is None else before)
                del self._before[number]

    def _received(self, number: int, frame: Optional[FrameType]) -> None:
        # Python has room for one function that looks at a program.
        if _is_held(frame) and (self._held or sys.getprofile() is None):
            self._held.append(number)
            sys.setprofile(self._look)
        else:
            self._handle(number, frame)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        """Python calls this where a function is called or returns, so that it is the program's own frame soon."""
        if not _is_held(frame, _UNSAFE):
            sys.setprofile(None)
            self._handle_held(frame)

    def _handle_held(self, frame: FrameType) -> None:
        number = self._held.pop(0)
        try:
            self._handle(number, frame)
        finally:
            if self._held:
                self._handle_held(frame)

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        before = self._before.get(number)
        asked = number in self._numbers
        if asked:
            self._recording.trigger(f"signal {signal.Signals(number).name}")
        if callable(before):
            before(number, frame)
        elif asked and before == signal.SIG_DFL and number not in _OF_USERS:
            # It ends the process, as it would have done.
            self._recording.leave()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
