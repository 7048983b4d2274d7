"""Which op made what a tensor holds."""

from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .._library import NOTHING, Value

DTYPES: Dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}
# Values of these types take part in the graph, and have no statistics.
WITHOUT_STATISTICS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool))
GRADIENTS = frozenset(("activation_gradient", "weight_gradient", "accumulated_gradient", "unscaled_gradient"))
KEPT = GRADIENTS | {"weight", "buffer", "optimizer_state"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def unreadable(tensor: torch.Tensor) -> str:
    """Why a tensor's memory is not read, in a word; an empty text where it is."""
    if tensor.is_nested:
        return "nested"
    if type(tensor) not in _PLAIN and type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return "subclass"
    if tensor.layout is not torch.strided:
        return "sparse" if "sparse" in str(tensor.layout) else "other layout"
    if tensor.is_meta:
        return "meta"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_complex() or tensor.is_conj():
        return "complex"
    if tensor.dtype not in DTYPES and tensor.dtype not in WITHOUT_STATISTICS:
        return str(tensor.dtype)[len("torch."):]
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_neg():
        return "wrapped"
    return ""


class Made:
    """An output of an op that was recorded."""

    __slots__ = ("op", "value", "step", "phase", "module", "function", "role", "parameter", "name", "scale", "source",
                 "unscaled_loss", "divisor", "has_gradient_of")

    def __init__(self, op: int, value: Value, step: int, phase: str, module: str, function: str, role: str, parameter: str,
                 name: str, scale: float) -> None:
        self.op, self.value, self.step = op, value, step
        self.phase, self.module, self.function = phase, module, function
        self.role, self.parameter, self.name, self.scale = role, parameter, name, scale
        self.source: Optional["Made"] = None  # behind a cast: its source; behind a scaled loss: the loss
        self.unscaled_loss: Optional[float] = None
        self.divisor: Optional[float] = None  # where it is a quotient by a number
        self.has_gradient_of = False


# Memory that no recorded op made: of `empty`, which may hold anything, and zeros.
UNMADE = Made(0, NOTHING, -1, "", "", "", "", "", "", 1.0)
CONSTANT = Made(0, NOTHING, -1, "", "", "", "", "", "", 1.0)


class Found(NamedTuple):
    """The makers of a tensor: the op that wrote last, others that wrote parts of it, and whether all of it is known."""

    last: Optional[Made]
    others: Tuple[Made, ...]
    complete: bool


_NOTHING = Found(None, (), False)


class _Part(NamedTuple):
    begin: int
    end: int
    dense: bool
    made: Made


class _Storage:
    __slots__ = ("reference", "whole", "parts")

    def __init__(self, reference: StorageWeakRef) -> None:
        self.reference = reference
        self.whole: Optional[Made] = None
        self.parts: List[_Part] = []


def storage_of(tensor: torch.Tensor) -> int:
    """A number for the memory that a tensor is a view of."""
    return tensor.untyped_storage()._cdata


def _extent(tensor: torch.Tensor) -> Tuple[int, int, bool]:
    begin, size = tensor.data_ptr(), tensor.element_size()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + span * size, tensor.numel() >= span


class Values:
    """By storage. A weak reference to a storage keeps its number from being given to another."""

    def __init__(self) -> None:
        self._storages: Dict[int, _Storage] = {}

    def write(self, tensor: torch.Tensor, made: Made) -> None:
        """Notes that an op made all that the tensor holds."""
        if tensor.numel() == 0:
            return
        storage = tensor.untyped_storage()
        entry = self._storages.get(storage._cdata)
        if entry is None:
            entry = self._storages[storage._cdata] = _Storage(StorageWeakRef(storage))
        if tensor.numel() * tensor.element_size() >= storage.nbytes():
            entry.whole, entry.parts = made, []
            return
        begin, end, dense = _extent(tensor)
        if dense:
            entry.parts = [part for part in entry.parts if part.begin < begin or part.end > end]
        entry.parts.append(_Part(begin, end, dense, made))
        if len(entry.parts) > 64:
            entry.parts = entry.parts[-64:]

    def forget(self, tensor: torch.Tensor) -> None:
        """Notes that an op made it that was not recorded."""
        self._storages.pop(storage_of(tensor), None)

    def find(self, tensor: torch.Tensor) -> Found:
        """The makers of a tensor's values."""
        entry = self._storages.get(storage_of(tensor))
        if entry is None or tensor.numel() == 0:
            return _NOTHING
        if not entry.parts:
            return Found(entry.whole, (), entry.whole is not None and entry.whole is not UNMADE)
        begin, end, _ = _extent(tensor)
        made: List[Made] = []
        covered = 0
        for part in reversed(entry.parts):
            if part.end <= begin or part.begin >= end:
                continue
            if part.made not in made:
                made.append(part.made)
            if part.dense and part.begin <= begin and part.end >= end:
                return Found(made[0], tuple(made[1:]), UNMADE not in made)
            covered += min(part.end, end) - max(part.begin, begin) if part.dense else 0
        if covered < end - begin and entry.whole is not None and entry.whole is not UNMADE:
            made.append(entry.whole)
            covered = end - begin
        if not made:
            return Found(entry.whole, (), False)
        return Found(made[0], tuple(made[1:]), covered >= end - begin)

    def prune(self) -> None:
        """Drops storages that are freed."""
        self._storages = {key: entry for key, entry in self._storages.items() if not entry.reference.expired()}
