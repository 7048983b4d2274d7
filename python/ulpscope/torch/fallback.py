"""Ops seen by a dispatch mode: it needs no compiled code that knows torch, and costs more."""

import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import backward, device
from .adapter import Adapter, Described
from .leaves import tensors_in
from .signals import holds_signals
from .tracker import (
    INTEGER, INTEGERS, NOTHING, OTHER, REAL, TENSOR, TENSORS, TEXT, AdapterStruct, ArgumentStruct, EdgeStruct, OpStruct,
    ParameterStruct, SchemaStruct, TensorStruct)

# Numbers of c10::ScalarType.
_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.bool: 11, torch.bfloat16: 15,
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_i64 = ctypes.c_int64


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
    if tensor.dtype not in _TYPES:
        return str(tensor.dtype)[len("torch."):]
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_neg():
        return "wrapped"
    return ""


class _Overload(NamedTuple):
    """An overload that the library knows."""

    number: int
    names: List[str]
    tensors: List[bool]
    defaults: List[Any]
    writes: bool


def _argument(value: Any, described: ArgumentStruct, keep: List[Any]) -> None:
    """Describes an argument that is no tensor."""
    if value is None:
        described.kind = NOTHING
    elif isinstance(value, (bool, int)):
        described.kind, described.integer = INTEGER, int(value)
    elif isinstance(value, float):
        described.kind, described.real = REAL, value
    elif isinstance(value, str):
        described.kind, described.text = TEXT, value.encode("utf-8", "replace")
    elif isinstance(value, (list, tuple)) and all(isinstance(each, (bool, int)) for each in value):
        array = (_i64 * max(1, len(value)))(*value)
        keep.append(array)
        described.kind, described.integers, described.count = INTEGERS, array, len(value)
    elif isinstance(value, torch.dtype):
        described.kind, described.text = TEXT, str(value)[len("torch."):].encode()
    else:
        described.kind = OTHER


class Mode(TorchDispatchMode):
    """Looks at ops and never changes what they do."""

    def __init__(self, adapter: "Fallback") -> None:
        super().__init__()
        self._adapter = adapter

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        kwargs = kwargs or {}
        adapter = self._adapter
        state = adapter.tracker.state
        if adapter.rests or state.is_stopped or state.muted:
            return func(*args, **kwargs)
        op = adapter.before(func, args, kwargs)
        result = func(*args, **kwargs)
        if op is not None:
            adapter.after(op, result)
        return result


class _Op(NamedTuple):
    """A call that is described."""

    structure: OpStruct
    tensors: List[Optional[torch.Tensor]]
    owner: List[Any]


class Fallback(Adapter):
    """A dispatch mode in Python."""

    name = "a dispatch mode in Python"
    versions_behind = 1

    def __init__(self) -> None:
        functions = (
            self._retain, self._is_expired, self._release_storage, lambda _, __: int(device.is_capturing()), self._measure, self._wait,
            lambda _, row: self._device.row(row), self._keep, self._ask, lambda _, handle: self._kept.pop(handle, None), self._function_of)
        self.structure = AdapterStruct(None, *(kind(holds_signals(function)) for function, (_, kind) in zip(functions, AdapterStruct._fields_[1:])))
        self._device = device.DeviceStatistics()
        self._overloads: Dict[Any, _Overload] = {}
        self._storages: Dict[int, Any] = {}  # seen since the library was called
        self._retained: Dict[int, List[Any]] = {}  # a weak reference, and how often it is retained
        # Described since the library was called: of a device, or with a node of autograd.
        self._live: Dict[int, torch.Tensor] = {}
        self._kept: Dict[int, Tuple[torch.Tensor, Any]] = {}  # on a device, until the library lets them go
        self._name = b""
        self._mode = Mode(self)
        self._handles: List[Any] = []
        self.tracker: Any = None

    def begin(self, tracker: Any) -> None:
        self.tracker = tracker
        self._mode.__enter__()

    def end(self) -> None:
        self._mode.__exit__(None, None, None)

    def is_suspended(self) -> bool:
        return torch._C._len_torch_dispatch_stack() == 0

    def can_end(self) -> bool:
        # A mode that the program entered later lies above, and would be left in the place of this one.
        depth = torch._C._len_torch_dispatch_stack()
        return depth > 0 and torch._C._get_dispatch_stack_at(depth - 1) is self._mode

    # Memory.

    def _retain(self, _: Any, storage: int) -> None:
        entry = self._retained.get(storage)
        if entry is not None:
            entry[1] += 1
        elif storage in self._storages:
            self._retained[storage] = [StorageWeakRef(self._storages[storage]), 1]

    def _is_expired(self, _: Any, storage: int) -> int:
        entry = self._retained.get(storage)
        return int(entry is None or entry[0].expired())

    def _release_storage(self, _: Any, storage: int) -> None:
        entry = self._retained.get(storage)
        if entry is not None:
            entry[1] -= 1
            if entry[1] == 0:
                del self._retained[storage]

    def _view(self, described: TensorStruct) -> torch.Tensor:
        """The tensor as it is described: that of the handle may be another view of its memory."""
        kept = self._kept.get(described.handle)
        tensor = self._live[described.handle] if kept is None else kept[0]
        shape, strides = tuple(described.shape[:described.rank]), tuple(described.strides[:described.rank])
        if tensor.shape == shape and tensor.stride() == strides and tensor.data_ptr() == (described.data or 0):
            return tensor
        offset = ((described.data or 0) - (described.storage_data or 0)) // tensor.element_size()
        with device.unseen():
            return tensor.as_strided(shape, strides, offset)

    def _on_device(self, compute: Callable[[], Any]) -> int:
        """1, or 0 where it fails, which ends the recording."""
        try:
            return int(compute() is not False)
        except Exception as error:
            self.fail(error)
            return 0

    def _measure(self, _: Any, measure: Any, rows: Any) -> int:
        def compute() -> None:
            asked, taken = measure.contents, rows.contents
            others = (asked.cast_from, asked.before, asked.update, asked.gradient)
            taken.first, taken.count = self._device.take(
                asked, self._view(asked.tensor.contents), *(self._view(each.contents) if each else None for each in others))

        return self._on_device(compute)

    def _wait(self, _: Any) -> int:
        return self._on_device(self._device.wait)

    def _keep(self, _: Any, tensor: Any, copy: Any) -> int:
        def compute() -> None:
            with device.unseen():
                self._keep_tensor(self._view(tensor.contents).clone(), copy)

        return self._on_device(compute)

    def _ask(self, _: Any, asked: Any, update: Any) -> int:
        def compute() -> None:
            rule = asked.contents
            given = (rule.gradient, rule.first, rule.second, rule.steps)
            self._keep_tensor(device.asked_update(rule.rule.contents, rule.count, self._view(rule.weight.contents),
                                                  *(self._view(each.contents) if each else None for each in given)), update)

        return self._on_device(compute)

    def _keep_tensor(self, tensor: torch.Tensor, to: Any) -> None:
        described = self.describe([tensor])
        ctypes.memmove(to, described.address, ctypes.sizeof(TensorStruct))
        self._kept[tensor._cdata] = tensor, described

    def _function_of(self, _: Any, described: Any, function: Any) -> int:
        tensor = self._live.get(described.contents.handle)
        node = None if tensor is None else tensor.grad_fn
        if tensor is None or not isinstance(node, torch._C._FunctionBase):
            return 0
        answer = function.contents
        self._name = node.name().encode()  # read until the next question
        answer.sequence, answer.name, answer.slot = node._sequence_nr(), self._name, tensor.output_nr
        return 1

    def describe(self, tensors: Sequence[Any]) -> Described:
        owner: List[Any] = []
        array = (TensorStruct * max(1, len(tensors)))()
        for described, tensor in zip(array, tensors):
            if not isinstance(tensor, torch.Tensor):
                continue
            described.is_present, described.handle = 1, tensor._cdata
            why = unreadable(tensor)
            if why:
                described.unreadable = why.encode()
                described.requires_grad = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.requires_grad
                continue
            storage = tensor.untyped_storage()
            described.storage = number = storage._cdata
            described.storage_bytes = storage.nbytes()
            self._storages[number] = storage
            described.data = data = tensor.data_ptr()
            described.storage_data = data - tensor.storage_offset() * tensor.element_size()
            shape = tensor.shape
            rank = described.rank = len(shape)
            described.shape, described.strides = (_i64 * rank)(*shape), (_i64 * rank)(*tensor.stride())
            described.type = _TYPES[tensor.dtype]
            described.is_on_host = device.is_on_host(tensor)
            described.requires_grad, described.is_view = tensor.requires_grad, tensor._is_view()
            if not described.is_on_host or (described.requires_grad and not tensor.is_leaf):
                self._live[tensor._cdata] = tensor
            owner.append(tensor)
        return Described(ctypes.addressof(array), len(tensors), (array, owner))

    def forget(self) -> None:
        """The library returned: it reads nothing any more."""
        self._storages.clear()
        self._live.clear()

    # Ops.

    def _overload(self, func: Any) -> _Overload:
        known = self._overloads.get(func)
        if known is not None:
            return known
        schema = func._schema
        keep: List[Any] = []
        parameters = (ParameterStruct * max(1, len(schema.arguments)))()
        names, tensors, defaults = [], [], []
        for described, each in zip(parameters, schema.arguments):
            written = each.alias_info is not None and each.alias_info.is_write
            default = each.default_value if each.has_default_value() else None
            described.name, described.is_tensor = each.name.encode(), "Tensor" in str(each.type)
            described.is_written, described.is_keyword = written, each.kwarg_only
            _argument(default, described.default_value, keep)
            names.append(each.name)
            tensors.append(bool(described.is_tensor))
            defaults.append(default)
        returns_alias = any(each.alias_info is not None for each in schema.returns)
        number = self.tracker.add_schema(SchemaStruct(
            schema.name.encode(), parameters, len(schema.arguments), returns_alias, torch.Tag.pointwise in func.tags))
        known = self._overloads[func] = _Overload(number, names, tensors, defaults, any(each.is_written for each in parameters))
        return known

    @holds_signals
    def before(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[_Op]:
        tracker = self.tracker
        tracker.state.muted += 1
        try:
            overload = self._overload(func)
            owner: List[Any] = []
            arguments = (ArgumentStruct * max(1, len(overload.names)))()
            tensors: List[Optional[torch.Tensor]] = []
            for index, described in enumerate(arguments[:len(overload.names)]):
                name = overload.names[index]
                value = args[index] if index < len(args) else kwargs.get(name, overload.defaults[index])
                if isinstance(value, torch.Tensor):
                    described.kind, described.first, described.count = TENSOR, len(tensors), 1
                    tensors.append(value)
                elif overload.tensors[index] and isinstance(value, (list, tuple)):
                    if any(isinstance(each, (list, tuple)) for each in value):  # as of all-gathers
                        value = tensors_in(value)
                    described.kind, described.first, described.count = TENSORS, len(tensors), len(value)
                    tensors += [each if isinstance(each, torch.Tensor) else None for each in value]
                else:
                    _argument(value, described, owner)
            given = self.describe(tensors)
            structure = OpStruct(overload.number, arguments, given.address, None, 0, torch.is_grad_enabled(), 0,
                                 torch._C._current_graph_task_id(), -1, -1)
            if structure.task != -1:
                node = torch._C._current_autograd_node()
                if node is not None:
                    name = node.name()
                    structure.node, structure.node_name = node._sequence_nr(), name.encode()
                    variable = getattr(node, "variable", None) if name == backward.ACCUMULATE_GRAD else None
                    structure.is_accumulate_grad = name == backward.ACCUMULATE_GRAD
                    structure.variable = 0 if variable is None else variable._cdata
            tracker.before(structure)
            return _Op(structure, tensors if overload.writes else [], [owner, arguments, given])
        except Exception as error:
            self.fail(error)
            return None
        finally:
            tracker.state.muted -= 1

    @holds_signals
    def after(self, op: _Op, result: Any) -> None:
        tracker = self.tracker
        tracker.state.muted += 1
        try:
            given = list(result) if isinstance(result, (list, tuple)) else [result]
            if any(isinstance(each, (list, tuple)) for each in given):
                given = tensors_in(given)
            results = self.describe([each if isinstance(each, torch.Tensor) else None for each in given])
            structure = op.structure
            op.owner.append(results)
            if op.tensors:  # the op may have moved what it wrote
                arguments = self.describe(op.tensors)
                structure.tensors = arguments.address
                op.owner.append(arguments)
            structure.results, structure.results_count = results.address, results.count
            structure.made_node = torch._C._autograd._get_sequence_nr() - 1
            tracker.after(structure)
            self.forget()
        except Exception as error:
            self.fail(error)
        finally:
            tracker.state.muted -= 1

    # Backward passes.

    def follow(self, roots: List[torch.Tensor]) -> bool:
        pending = [root.grad_fn for root in roots if root.grad_fn is not None]
        seen = set(pending)
        reaches = False
        while pending:
            node = pending.pop()
            edges = (EdgeStruct * max(1, len(node.next_functions)))()
            for edge, (below, slot) in zip(edges, node.next_functions):
                if below is None:
                    continue
                edge.exists, edge.slot = 1, slot
                if below.name() == backward.ACCUMULATE_GRAD:
                    variable = getattr(below, "variable", None)
                    edge.to_parameter, edge.handle = 1, 0 if variable is None else variable._cdata
                    reaches = reaches or self.tracker.is_named(edge.handle)
                    continue
                edge.sequence = below._sequence_nr()
                if below not in seen:
                    seen.add(below)
                    pending.append(below)
            self._handles.append(node.register_hook(self._hook(node, edges, len(node.next_functions))))
        return reaches

    def release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.tracker.end_backward()

    def _hook(self, node: Any, edges: Any, count: int) -> Any:
        sequence = node._sequence_nr()
        name = node.name().encode() if isinstance(node, torch._C._FunctionBase) else None

        @holds_signals
        def after(gradients: Any, arrived: Any) -> None:
            tracker = self.tracker
            if tracker.state.is_stopped or tracker.state.muted:
                return
            tracker.state.muted += 1
            try:
                given = [each if isinstance(each, torch.Tensor) else None for each in gradients[:count]]
                before = [] if name is None else [each if isinstance(each, torch.Tensor) else None for each in arrived]
                described, came = self.describe(given), self.describe(before)
                tracker.handed_on(sequence, name, edges, described.address, described.count, came.address, came.count)
                self.forget()
            except Exception as error:
                self.fail(error)
            finally:
                tracker.state.muted -= 1

        return after
