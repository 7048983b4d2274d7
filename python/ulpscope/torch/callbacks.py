"""Callbacks of training libraries that record a run: LightningCallback and TrainerCallback (of Hugging Face's transformers).

Each is a class of its library, made when it is first asked for: neither library is imported before, nor needed for the other's."""

import atexit
import importlib
import sys
from types import TracebackType
from typing import Any, List, Optional, Type

from .guard import warn
from .record import Recording


class _Records:
    """A recording that begins with a training, and ends with it, with an exception, or with the process."""

    def __init__(self, path: Any, **options: Any) -> None:
        """path and options are those of ulpscope.record(); what is wrong with them is raised when training begins."""
        super().__init__()
        self.path, self.options = path, options
        self.recording: Optional[Recording] = None

    def begin(self, model: Any, optimizers: List[Any], scaler: Any, **known: Any) -> None:
        """Begins to record; a recording of before is closed. `known` are options that the library tells, where none were given."""
        self.close()
        self.recording = Recording(self.path, model, optimizers or None, scaler, **{**known, **self.options})
        atexit.register(self.close)

    def close(self, error: Optional[BaseException] = None) -> None:
        """Closes the recording, if there is one; it may be called again."""
        recording, self.recording = self.recording, None
        if recording is not None:
            atexit.unregister(self.close)
            recording.__exit__(None if error is None else type(error), error, None)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        self.close(error)

    def __getstate__(self) -> Any:
        """Copies and pickled callbacks record nothing yet."""
        return {**self.__dict__, "recording": None}


def _scaler(scaler: Any) -> Any:
    return scaler if hasattr(scaler, "is_enabled") and hasattr(scaler, "get_scale") else None


def _lightning() -> Any:
    bases = [sys.modules[name].Callback for name in ("lightning.pytorch", "pytorch_lightning")
             if hasattr(sys.modules.get(name), "Callback")]
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if not bases:
            try:
                bases = [importlib.import_module(name).Callback]
            except ImportError:
                continue
    if not bases:
        raise ImportError("LightningCallback needs lightning or pytorch_lightning, neither of which is installed")

    class LightningCallback(_Records, *bases):  # type: ignore[misc]
        """Records Trainer.fit(): LightningCallback("run.h5", level="stats", ...), with the options of ulpscope.record()."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            precision = getattr(trainer, "precision_plugin", None)
            # It counts the steps of all optimizers, and those before a checkpoint too.
            first_step = int(trainer.global_step) if len(trainer.optimizers) == 1 else 0
            self.begin(pl_module, list(trainer.optimizers), _scaler(getattr(precision, "scaler", None)), first_step=first_step,
                       precision={"bf16-mixed": "bf16", "16-mixed": "fp16"}.get(str(trainer.precision), ""))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.close(exception)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self.close()

    return LightningCallback


def _trainer() -> Any:
    try:
        base = importlib.import_module("transformers").TrainerCallback
    except ImportError as error:
        raise ImportError(f"TrainerCallback needs transformers: {error}") from error

    class TrainerCallback(_Records, base):  # type: ignore[misc, valid-type]
        """Records Trainer.train(): TrainerCallback("run.h5", level="stats", ...), with the options of ulpscope.record().

        Trainer tells callbacks of no exception: used as `with TrainerCallback("run.h5") as callback:` around train(), it is closed by one;
        else by close(), by the next training, or when the process ends."""

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **others: Any) -> None:
            if optimizer is None:
                warn("ulpscope records no optimizer: the Trainer told of none")
            # Trainer gives each micro-batch its part of the step's loss: divided by their number, or by the tokens of all of them.
            self.begin(model, [] if optimizer is None else [optimizer], _scaler(getattr(optimizer, "scaler", None)), accumulate="sum",
                       first_step=int(state.global_step),
                       precision="fp16" if args.fp16 else "bf16" if args.bf16 else "")

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            self.close()

    return TrainerCallback


def __getattr__(name: str) -> Any:
    make = {"LightningCallback": _lightning, "TrainerCallback": _trainer}.get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = make()
    made.__qualname__ = name  # so that copies in other processes find it
    globals()[name] = made
    return made
