"""Which way ops are seen: callbacks in C++ where they can be had, else a dispatch mode."""

import os
from typing import Optional, Tuple

from .._options import WAYS
from .._report import tell
from .adapter import Adapter, Unavailable
from .fallback import Fallback
from .fast import Fast

_told = False


def choose(way: Optional[str]) -> Tuple[Adapter, str]:
    """The adapter, and a sentence of which it is and why. `way` None: what ULPSCOPE_ADAPTER says, else "auto"."""
    way = way or os.environ.get("ULPSCOPE_ADAPTER") or "auto"
    if way not in WAYS:
        raise ValueError(f"adapter is none of {', '.join(WAYS)}: {way}")
    adapter: Adapter
    if way == "dispatch":
        adapter, why = Fallback(), ", as was asked"
    else:
        try:
            adapter, why = Fast(), ""
        except Unavailable as reason:
            if way == "callbacks":
                raise RuntimeError(f"the callbacks in C++ cannot be had: {reason}") from reason
            adapter, why = Fallback(), f", since the callbacks in C++ cannot be had: {reason}"
    sentence = f"Ops of PyTorch were seen by {adapter.name}{why}."
    _tell(f"recording through {adapter.name}{why}")
    return adapter, sentence


def _tell(line: str) -> None:
    global _told
    if not _told:
        _told = True
        tell(line)
