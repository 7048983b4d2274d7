"""Recording of a script that cannot be changed: finds its model, optimizers and scaler, and begins right before the first forward pass."""

import functools
import gc
import os
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Union

import torch

from .guard import warn
from .patch import Patch
from .record import Recording
from .samples import LOADERS

_Models = Union[torch.nn.Module, Dict[str, torch.nn.Module]]


class Automatic:
    """Watches which optimizers and scalers are made and which modules are called, until one is called for training whose parameters an
    optimizer has. Then a Recording begins, and nothing is watched any more. `recording` is that, and `failure` why it did not begin."""

    def __init__(self, path: str, options: Dict[str, Any], begin: Callable[..., Any] = Recording) -> None:
        self.recording: Optional[Any] = None
        self.failure = ""
        self._path, self._options, self._begin = path, options, begin
        self._process = os.getpid()
        self._optimizers: List["weakref.ref[torch.optim.Optimizer]"] = []
        self._scalers: List["weakref.ref[torch.amp.GradScaler]"] = []
        self._watching = True
        if options.get("compile") == "eager":  # before anything is compiled, of which no call would be seen
            torch.compiler.set_stance("force_eager")
        # The first batch is given before the model is called.
        self._loaders = LOADERS.listen(lambda delivery: None)
        self._patches = [Patch(torch.optim.Optimizer, "__init__", self._made(self._optimizers)),
                         Patch(torch.amp.GradScaler, "__init__", self._made(self._scalers)),
                         Patch(torch.nn.Module, "__call__", self._called)]

    def close(self, error: Optional[BaseException] = None) -> None:
        """Ends watching and recording; `error` is what the script ended with."""
        self._end_watching()
        self._loaders.remove()
        if self.recording is not None:
            self.recording.__exit__(None if error is None else type(error), error, None)

    def _end_watching(self) -> None:
        self._watching = False
        for patch in self._patches:
            patch.remove()

    def _made(self, kept: List[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Keeps what is made, for as long as the script does."""

        def replaces(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def made(this: Any, *args: Any, **kwargs: Any) -> None:
                original(this, *args, **kwargs)
                if self._watching and all(each() is not this for each in kept):
                    kept.append(weakref.ref(this))

            return made

        return replaces

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            # First, since torch.compile knows the answer, and compiles the call alone.
            if not torch.compiler.is_compiling() and self._watching:
                self._look_at(module)
            return original(module, *args, **kwargs)

        return called

    def _look_at(self, module: torch.nn.Module) -> None:
        """Begins where this call is the first one of training. The hooks that recording sets are then called by the call itself."""
        optimizers = [each for each in (made() for made in self._optimizers) if each is not None]
        if not optimizers or not torch.is_grad_enabled() or os.getpid() != self._process:
            return
        if torch._C._len_torch_dispatch_stack():  # a mode that ends before the training does must not end the recording's
            return
        wanted = {id(parameter) for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]}
        if not _holds(module, wanted):
            return
        self._end_watching()
        scalers = [each for each in (made() for made in self._scalers) if each is not None and each.is_enabled()]
        try:
            models = models_of(module, wanted)
            self.recording = self._begin(self._path, models, optimizers, scalers[-1] if scalers else None, **self._options)
            self.recording.tells_end = False  # the last line of the script does
        except Exception as error:  # the script goes on
            self.failure = f"{type(error).__name__}: {error}"
            warn(f"ulpscope records nothing: {self.failure}")


def models_of(called: torch.nn.Module, wanted: Set[int]) -> _Models:
    """The modules to record, which have all wanted parameters that modules have: the one called, where it has all; else another that
    has; else several, by the names of their classes."""
    rest = wanted - _parameters(called)
    if not rest:
        return called
    holders = [(module, held) for module, held in ((each, _parameters(each) & wanted) for each in _modules()) if held & rest]
    reached = set().union(*(held for _, held in holders), wanted - rest)
    whole = [module for module, held in holders if held == reached]
    if whole:
        return max(whole, key=_fits)
    models = [called]
    while holders:
        best, held = max(holders, key=lambda holder: (len(holder[1] & rest), *_fits(holder[0])))
        models.append(best)
        rest = rest - held
        holders = [holder for holder in holders if holder[1] & rest]
    return called if len(models) == 1 else _named(models)


def _named(models: Iterable[torch.nn.Module]) -> Dict[str, torch.nn.Module]:
    named: Dict[str, torch.nn.Module] = {}
    for model in models:
        kind = type(model).__name__
        names = [kind, *(f"{kind}{number}" for number in range(2, len(named) + 3))]
        named[next(name for name in names if name not in named)] = model
    return named


def _modules() -> List[torch.nn.Module]:
    # By their types: objects that stand for others answer isinstance() with what these are, and may load them for that.
    return [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]


def _parameters(module: torch.nn.Module) -> Set[int]:
    try:
        return {id(parameter) for parameter in module.parameters()}
    except Exception:  # one that is being made, or is taken apart
        return set()


def _holds(module: torch.nn.Module, wanted: Set[int]) -> bool:
    return not wanted.isdisjoint(_parameters(module))


def _fits(module: torch.nn.Module) -> Tuple[int, int]:
    """The best of the modules with the wanted parameters has the fewest others, and is no part of one that has no more."""
    return -sum(1 for _ in module.parameters()), sum(1 for _ in module.modules())
