"""Signals that make a recording write the rows that it holds."""

import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Union

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]

# A process that has no handler of its own for these is not ended by them.
_OF_USERS = (signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Handlers before those of the program, until end()."""

    def __init__(self, numbers: List[signal.Signals], recording: Any) -> None:
        if numbers and threading.current_thread() is not threading.main_thread():
            raise ValueError("on has a signal, and signals are for the main thread, which is not the one that records")
        self._numbers, self._recording = numbers, recording
        self._before: Dict[int, _Handler] = {}

    def begin(self) -> None:
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._received)

    def end(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # theirs go on to be called
        for number, before in self._before.items():
            if signal.getsignal(number) == self._received:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def _received(self, number: int, frame: Optional[FrameType]) -> None:
        before = self._before.get(number)
        self._recording.trigger(f"signal {signal.Signals(number).name}")
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL and number not in _OF_USERS:
            # It ends the process, as it would have done.
            self._recording.leave()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
