"""What keeps a failure of the recording from the program that is recorded."""

import sys
import warnings
from types import TracebackType
from typing import Any, Optional, Type

from .._library import Refused
from .signals import holds_signals


class Guard:
    """A block in which nothing is recorded, and from which no exception comes."""

    __slots__ = ("_session",)

    def __init__(self, session: Any) -> None:
        self._session = session

    @holds_signals
    def __enter__(self) -> None:
        tracker = self._session.tracker
        tracker.lock()
        tracker.state.muted += 1

    @holds_signals
    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> bool:
        session = self._session
        try:
            if error is None:
                return False
            if isinstance(error, Refused):
                session.refused(str(error))
            elif isinstance(error, Exception) and not session.failed:
                session.fail(error)
            return isinstance(error, Exception)
        finally:
            session.tracker.state.muted -= 1
            session.tracker.unlock()


def warn(text: str) -> None:
    """A warning that raises nothing, whatever the filters of warnings are."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Warning:
        print(text, file=sys.stderr)
