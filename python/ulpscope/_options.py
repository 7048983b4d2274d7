"""The options of a recording: their defaults, and what they may be. Nothing here needs PyTorch."""

import re
import signal
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, Union

WAYS = ("auto", "callbacks", "dispatch")
LEVELS = tuple(level + bits for level in ("health", "stats", "full") for bits in ("", ",bits"))
STOPS = ("nan", "overflow", "backoff")
PRECISIONS = ("fp32", "bf16", "fp16")
ACCUMULATIONS = ("mean", "sum")
COMPILES = ("see", "eager")
PHASES = ("data", "forward", "recompute", "loss", "backward", "scaling", "communication", "optimizer", "evaluation")
METRIC_KINDS = ("other", "evaluation_loss", "evaluation_accuracy")
Trigger = Union[str, int]

_LEAST_BYTES = 2_000_000  # an empty trace has 1.5 MB
_SKIPS, _NORM = re.compile(r"skips:[1-9][0-9]{0,8}"), re.compile(r"grad_norm:([0-9]{1,9}(?:\.[0-9]{1,9})?)x")


def may_be_trace(path: str) -> bool:
    """Whether the file begins as traces do. No trace replaces others."""
    try:
        with open(path, "rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError:
        return True  # it is told where the file is opened


@dataclass(frozen=True)
class Options:
    """As record() explains them. Raises TypeError or ValueError; the message begins with the name of the option."""

    level: str = "stats"
    every: int = 1
    modules: str = ""
    ops: str = ""
    phases: str = ""
    max_bytes: int = 0
    overwrite: bool = False
    name: str = ""
    precision: str = ""
    accumulate: Optional[str] = None
    compile: str = "see"
    adapter: Optional[str] = None
    sample: int = 1
    first_step: int = 0
    keep_last: int = 0
    after: int = 5
    on: Union[Trigger, Sequence[Trigger]] = ("nan", "skips:8")
    stop_on: str = ""

    def __post_init__(self) -> None:
        for option in ("modules", "ops", "phases", "name"):
            text = getattr(self, option)
            if not isinstance(text, str):
                raise TypeError(f"{option} is no str: {type(text).__name__}")
        for option, least in (("every", 1), ("max_bytes", 0), ("sample", 1), ("first_step", 0), ("keep_last", 0), ("after", 0)):
            count = getattr(self, option)
            if not isinstance(count, int):
                raise TypeError(f"{option} is no int: {type(count).__name__}")
            if count < least:
                raise ValueError(f"{option} is below {least}: {count}")
        for option, known, default in (("level", LEVELS, "stats"), ("stop_on", STOPS, ""), ("precision", PRECISIONS, ""),
                                       ("accumulate", ACCUMULATIONS, None), ("compile", COMPILES, "see"), ("adapter", WAYS, None)):
            given = getattr(self, option)
            if given != default and given not in known:
                raise ValueError(f"{option} is none of {', '.join(known)}: {given}")
        if not isinstance(self.overwrite, bool):
            raise TypeError(f"overwrite is neither True nor False: {self.overwrite!r}")
        if self.max_bytes != 0 and self.max_bytes < _LEAST_BYTES:
            raise ValueError(f"max_bytes is {self.max_bytes}; a trace has room for steps from {_LEAST_BYTES} on, and 0 is no limit")
        unknown = [phase for phase in self.phases.split(",") if phase and phase not in PHASES]
        if unknown:
            raise ValueError(f"phases has {unknown[0]!r}; expected some of {', '.join(PHASES)}")
        self.triggers()
        if self.keep_last == 0:
            for option in ("after", "on"):
                if getattr(self, option) != getattr(Options, option):
                    raise ValueError(f"{option} is for recordings that hold steps (keep_last)")

    def triggers(self) -> Tuple[str, List[signal.Signals]]:
        """What makes a recording that holds steps write them: texts with commas between, and signals."""
        texts: List[str] = []
        signals: List[signal.Signals] = []
        for given in [self.on] if isinstance(self.on, (str, int)) else list(self.on):
            if isinstance(given, int):
                if given not in signal.Signals.__members__.values():
                    raise ValueError(f"on has {given}, which is the number of no signal")
                signals.append(signal.Signals(given))
                continue
            if not isinstance(given, str):
                raise TypeError(f"on has {type(given).__name__}; expected texts and numbers of signals")
            for text in given.split(","):
                if text in signal.Signals.__members__:
                    signals.append(signal.Signals[text])
                elif text == "nan" or _SKIPS.fullmatch(text) or ((times := _NORM.fullmatch(text)) and float(times[1]) > 1):
                    texts.append(text)
                else:
                    raise ValueError(f'on has {text!r}; expected "nan", "skips:8", "grad_norm:10x" or a signal')
        return ",".join(texts), signals
