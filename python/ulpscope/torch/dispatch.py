"""The dispatch mode: every op of ATen below autograd, described for the recorder once it has run."""

import os
import sys
from types import FrameType
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._library import NOTHING, Call, Label, Node, Refused, Tensor, Value
from . import backward, captures, functions, updates
from .functions import tensors_in
from .values import CONSTANT, DTYPES, GRADIENTS, KEPT, UNMADE, Found, Made, storage_of, unreadable

_NOT_RECORDED = frozenset(("prim", "_c10d_functional", "c10d_functional", "fsdp", "profiler", "debugprims"))
# Views whose gradients are computed: they are ops of their own to their backward ops.
_VIEWS_WITH_GRADIENTS = frozenset(("expand", "select", "slice", "as_strided", "unfold", "diagonal"))
_CLIPS = frozenset(("mul", "div", "clamp", "clamp_min", "clamp_max", "copy", "minimum", "maximum"))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_WRAPPERS = ("contextlib.py", "functools.py")
_BATCH_NORM_OUTPUTS = 3  # its values, and the mean and the inverse deviation of the batch; the buffers come behind


class Place(NamedTuple):
    """Where an op stands in the step."""

    phase: str
    module: str


class _Row(NamedTuple):
    """One op call to be recorded: of ops over lists, that of one element."""

    name: str
    bound: Dict[str, Any]
    reads: List[functions.Read]
    outputs: List[Tuple[int, torch.Tensor]]
    written: FrozenSet[int]  # slots of arguments that the op changed


def on_host(tensor: torch.Tensor) -> Tensor:
    """A tensor's memory as the recorder reads it; of a device, a copy."""
    held = tensor if tensor.is_cpu else tensor.detach().cpu()
    return Tensor(held.data_ptr(), DTYPES[held.dtype], held.shape, held.stride(), held)


def narrows(given: torch.Tensor, cast: torch.Tensor) -> bool:
    """Whether a cast's roundings are counted: those to 16 bits."""
    return cast.element_size() == 2 and given.dtype != cast.dtype and given.shape == cast.shape


_shown: Dict[str, str] = {}  # by file: how its lines are named, or an empty text where they are not


def _show(path: str) -> str:
    whole = os.path.abspath(path)
    if path.startswith("<frozen") or whole.startswith((_TORCH, _PACKAGE)) or os.path.basename(path) in _WRAPPERS:
        return ""
    below = os.path.relpath(whole)
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


class Mode(TorchDispatchMode):
    """Looks at ops and never changes what they do."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self._session = session
        self._schemas: Dict[Any, functions.Schema] = {}
        self._locations: Dict[Tuple[str, str, str, int], str] = {}
        self._calls: Dict[Tuple[str, str, str], int] = {}
        self._pass = -1  # the pass in which calls are counted for their attributes
        self._counts: Dict[Tuple[Any, ...], int] = {}
        self._attributes: Dict[Tuple[Any, ...], str] = {}
        self._sequence = torch._C._autograd._get_sequence_nr
        self._task = -1  # the graph task that began last
        self._scale = 1.0  # the loss scale in the gradients of the pass that goes on
        self._started: Optional[int] = None  # the frame that made a starting gradient

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        kwargs = kwargs or {}
        session = self._session
        if session.muted or session.steps.quiet:
            return func(*args, **kwargs)
        if session.paused:
            result = func(*args, **kwargs)
            with session.guard():
                self._forget(func, args, kwargs)
            return result
        with session.guard():
            self._before(func, args, kwargs)
        result = func(*args, **kwargs)
        with session.guard():
            self._after(func, args, kwargs, result)
        return result

    def new_pass(self) -> None:
        """Ops are counted anew."""
        self._calls = {}

    def _schema(self, func: Any) -> functions.Schema:
        schema = self._schemas.get(func)
        if schema is None:
            schema = self._schemas[func] = functions.Schema(func)
        return schema

    def _before(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Looks at memory that is about to change: buffers that were not read yet, and gradients, whose norms are taken while they
        are whole."""
        session = self._session
        if session.unread and session.steps.open:
            schema = self._schema(func)
            if schema.writes or "batch_norm" in schema.base:
                self._source_buffers(schema, schema.bind(args, kwargs))
        if session.steps.state != "backward" or session.steps.optimizing:
            return
        schema = self._schema(func)
        if not schema.writes or schema.base not in _CLIPS or torch._C._current_graph_task_id() != -1:
            return
        bound = schema.bind(args, kwargs)
        for argument in schema.arguments:
            if argument.written:
                for tensor in tensors_in(bound[argument.name]):
                    made = session.values.find(tensor).last
                    if made is not None and made.parameter and made.role in GRADIENTS:
                        session.gradient_before_clipping(made, tensor)

    def _forget(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Nothing is known of memory that an op of a pause wrote."""
        schema = self._schema(func)
        names = [argument.name for argument in schema.arguments if argument.written]
        if "batch_norm" in schema.base:  # its schema does not say that it writes them
            names += ["running_mean", "running_var"]
        bound = schema.bind(args, kwargs)
        for name in names:
            for tensor in tensors_in(bound.get(name)):
                if not unreadable(tensor):
                    self._session.values.forget(tensor)

    def _after(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        schema = self._schema(func)
        if schema.namespace in _NOT_RECORDED:
            return
        session = self._session
        bound = schema.bind(args, kwargs)
        if schema.namespace == "c10d":  # other processes write what it is given
            for tensor in tensors_in(list(bound.values())):
                if not unreadable(tensor):
                    session.values.forget(tensor)
            return
        reads = [tensor for argument in schema.arguments if argument.is_tensor for tensor in tensors_in(bound[argument.name])]
        outputs = tensors_in(result)
        written = [tensor for argument in schema.arguments if argument.written for tensor in tensors_in(bound[argument.name])]
        if not outputs and not written:
            return
        reasons = [reason for reason in map(unreadable, reads + outputs) if reason]
        if reasons:
            session.not_read.update(reasons[:1])
            for tensor in outputs:
                if not unreadable(tensor):
                    session.values.forget(tensor)
            return
        if session.unread and session.steps.open:
            self._source_buffers(schema, bound)
        task = torch._C._current_graph_task_id()
        self._follow_backward(schema, task, written)
        if schema.name == "_amp_foreach_non_finite_check_and_unscale_":
            self._unscale(bound)
            return
        if schema.name == "_amp_update_scale_":
            session.scaler_updated(bound)
            return
        if schema.is_empty:
            for tensor in outputs:
                session.values.write(tensor, UNMADE)
            return
        if not schema.writes and reads and outputs:
            memory = {storage_of(tensor) for tensor in reads}
            if schema.is_view or all(storage_of(tensor) in memory for tensor in outputs):
                self._view(schema, reads, task)
                return
        place = self._place(schema, task, reads, written)
        if place is None:
            for tensor in written or outputs:
                if schema.base == "zero":
                    session.values.write(tensor, CONSTANT)
                elif not (session.steps.optimizing and self._is_kept(tensor)):
                    session.values.forget(tensor)
            return
        for row in self._rows(schema, bound, written, result):
            self._record(schema, row, place, task)

    def _source_buffers(self, schema: functions.Schema, bound: Dict[str, Any]) -> None:
        self._session.source_buffers([read.tensor for read in schema.reads(bound)])

    def _is_kept(self, tensor: torch.Tensor) -> bool:
        made = self._session.values.find(tensor).last
        return made is not None and made.role in KEPT

    def _follow_backward(self, schema: functions.Schema, task: int, written: List[torch.Tensor]) -> None:
        """Where a backward pass begins: its loss, the scale in it, and hooks on its nodes."""
        session = self._session
        if task == -1:
            if schema.base == "ones_like" and backward.is_starting_gradient():
                start = backward.find_start()
                if start is not None and self._started != id(start.frame):
                    self._started = id(start.frame)
                    self._scale = session.backward_begins(start)
            elif self._task != -1:
                self._task = -1
                session.watch.release()
            return
        if task == self._task:
            return
        start = backward.find_start()
        outer = self._task == -1 or start is None or not start.nested
        if outer:
            self._task = task
        if start is not None and self._started != id(start.frame):
            scale = session.backward_begins(start)
            if outer:
                self._scale = scale
        self._started = None

    def _place(self, schema: functions.Schema, task: int, reads: Sequence[torch.Tensor],
               written: Sequence[torch.Tensor]) -> Optional[Place]:
        """Where the op stands; None: it is no part of a step, as what prepares data."""
        session = self._session
        steps = session.steps
        top = session.stack[-1] if session.stack else None
        if task != -1:
            if not steps.open:
                return None
            if top is not None and top.task == task:
                return Place("recompute", top.name)
            return Place("backward", "")
        if top is not None and steps.open:
            return Place("evaluation" if top.evaluating else "forward", top.name)
        made = [session.values.find(tensor).last for tensor in reads]
        grows = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in reads)
        if steps.optimizing and not grows:
            return None
        if schema.base == "ones_like" and self._started is not None and steps.open:
            return Place("backward", "")
        if steps.state in ("idle", "ended"):
            if grows and any(each is not None and each.role == "weight" for each in made):
                session.enter(False)
                return Place("forward", "")
            if not grows and steps.open:
                if written and schema.base != "zero" and any(self._is_kept(tensor) for tensor in written):
                    return Place("optimizer", "")
                if any(each is not None and each.phase == "evaluation" and each.step == steps.number for each in made):
                    return Place("evaluation", "")
            return None
        if written and schema.base == "zero":
            return None
        if not any(each is not None and each.step >= 0 for each in made):
            if not (grows and steps.state == "backward"):
                return None
        if any(each is not None and each.phase == "evaluation" for each in made) and not grows:
            return Place("evaluation", "")
        if steps.state == "backward" and grows and any(each is not None and each.role == "weight" for each in made):
            session.enter(False)
            return Place("forward", "")
        return Place("loss" if steps.state == "forward" else "scaling", "")

    def _makes_node(self, reads: Sequence[torch.Tensor]) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in reads)

    def _view(self, schema: functions.Schema, reads: Sequence[torch.Tensor], task: int) -> None:
        """A view counts as its value: it makes a node, and no row."""
        session = self._session
        if not session.steps.open or not self._makes_node(reads):
            return
        made = session.values.find(reads[0]).last
        if made is None or made.step < 0:
            return
        op, module = made.value.op, made.module
        if schema.base in _VIEWS_WITH_GRADIENTS and task == -1 and session.stack:
            module = session.stack[-1].name
            token, op = session.recorder.begin_op(Call(schema.base, "forward", module=module, inputs=[made.value]))
            session.recorder.drop_op(token)
        session.nodes.add(self._sequence() - 1, backward.Node(op, module, made.value, made.role in ("weight", "weight_cast"), (0,)))

    def _unscale(self, bound: Dict[str, Any]) -> None:
        """The scaler's unscaling: of each gradient a row, unless a fused optimizer does it."""
        session = self._session
        found = bound["found_inf"]
        overflowed = bool(updates.number(found) > 0)
        if not session.unscaled(overflowed) or not session.steps.open:
            return
        for gradient in bound["self"]:
            made = session.values.find(gradient).last
            inputs = [made.value] if made is not None and made.step >= 0 else []
            parameter = made.parameter if made is not None else ""
            call = Call("unscale", "scaling", "unscale", module=session.module_of(parameter), parameter=parameter, inputs=inputs,
                        inputs_unknown=not inputs)
            self._emit(call, [(0, gradient, Label("unscaled_gradient", parameter))], None)
        if overflowed:
            total = sum(updates.squares(list(bound["self"])))
            session.steps.norms(total, total)

    @staticmethod
    def _fresh(schema: functions.Schema, bound: Dict[str, Any], written: List[torch.Tensor], result: Any) -> List[Any]:
        """The outputs by their slots that are none of what the op changed; None where one was not asked for."""
        given = list(result) if isinstance(result, (list, tuple)) else [result]
        made: List[Any] = [each if isinstance(each, torch.Tensor) else None for each in given]
        if any(isinstance(each, (list, tuple)) for each in given):
            made = list(tensors_in(given))
        if schema.base == "convolution_backward" and not functions.gives_gradient_of_input(bound):
            made = made[1:]
        if written:
            changed = {storage_of(tensor) for tensor in written}
            made = [each for each in made if each is not None and storage_of(each) not in changed]
        return made

    def _rows(self, schema: functions.Schema, bound: Dict[str, Any], written: List[torch.Tensor],
              result: Any) -> List[_Row]:
        if not schema.is_list:
            made = self._fresh(schema, bound, written, result)
            if functions.function_of(schema.name, bound) == "batch_norm":
                # Some overloads do not say that they write their buffers, and others write none outside of training.
                is_training = bound.get("training", bool(written))
                written = tensors_in([bound.get("running_mean"), bound.get("running_var")]) if is_training else []
                made = made[:_BATCH_NORM_OUTPUTS]
            slots = frozenset(range(len(made), len(made) + len(written)))
            told = [(slot, tensor) for slot, tensor in enumerate(made + written) if tensor is not None]
            return [_Row(schema.name, bound, schema.reads(bound), told, slots)]
        rows = []
        outputs = tensors_in(result)
        lists = [argument for argument in schema.arguments
                 if argument.is_tensor and isinstance(bound[argument.name], (list, tuple))]
        changed = [argument for argument in lists if argument.written]
        for index in range(max((len(bound[argument.name]) for argument in lists), default=0)):
            element = dict(bound)
            for argument in lists:
                given = bound[argument.name]
                element[argument.name] = given[index] if index < len(given) else None
            if changed:
                made = [tensor for argument in changed for tensor in tensors_in(element[argument.name])]
            else:
                made = outputs[index:index + 1]
            rows.append(_Row(schema.name, element, schema.reads(element), list(enumerate(made)),
                             frozenset(range(len(made))) if changed else frozenset()))
        return rows

    def _record(self, schema: functions.Schema, row: _Row, place: Place, task: int) -> None:
        session = self._session
        function = functions.function_of(row.name, row.bound)
        name, parameter, forward_id, module = row.name, "", 0, place.module
        scaled_by: Optional[float] = None
        label = Label()
        edge: Optional[backward.Edge] = None
        node = torch._C._current_autograd_node() if task != -1 else None
        reads = list(row.reads)
        found = [session.values.find(read.tensor) for read in reads]
        made = [each.last for each in found]
        scaler = session.scaler_of_call() if function == "mul" and place.phase in ("loss", "scaling") else None
        if place.phase == "backward":
            label = Label("activation_gradient", scale=self._scale if task != -1 else 1.0)
            if node is not None and node.name() == backward.ACCUMULATE_GRAD:
                parameter = session.name_of(getattr(node, "variable", None)) or ""
                label = Label("accumulated_gradient", parameter, scale=self._scale)
                if schema.base == "add":
                    name, function = "accumulate", "accumulate"
            else:
                edge = self._sum_of(schema, row, node)
                forward = self._forward_of(node)
                if edge is not None:
                    name, function = "accumulate", "accumulate"
                    if edge.parameter:
                        parameter = edge.parameter
                        label = Label("accumulated_gradient", parameter, scale=self._scale)
                    else:
                        forward = session.nodes.find(edge.sequence)
                if forward is not None:
                    forward_id, module = forward.op, forward.module
                elif node is not None:
                    session.unmapped.update([node.name()])
            if parameter:
                forward_id, module = 0, session.module_of(parameter)
        elif scaler is not None:
            function = "scale"
            for read in reads[1:]:
                session.values.write(read.tensor, CONSTANT)
            reads, found, made = reads[:1], found[:1], made[:1]
            scaled_by = session.scale_in_force(scaler)
            label, place = Label("loss", scale=scaled_by), place._replace(phase="scaling")
        elif place.phase == "scaling":
            gradient = next((each for each in made if each is not None and each.role in GRADIENTS), None)
            if gradient is not None:
                label = Label(scale=gradient.scale)
                parameter, module = gradient.parameter, session.module_of(gradient.parameter)
        first = reads[0].tensor if reads else None
        if schema.base == "copy" and first is not None and row.outputs and first.dtype != row.outputs[0][1].dtype:
            function = "cast"
        source = made[0] if made else None
        if function == "cast":
            if source is not None and source.role in ("weight", "weight_cast") and place.phase != "backward":
                parameter = source.parameter
                label = Label("weight_cast", parameter)
            elif source is not None and source.role == "loss":
                label = Label("loss", scale=source.scale)
            if first is None or not row.outputs:
                function = "other"
            elif first.dtype not in DTYPES or row.outputs[0][1].dtype not in DTYPES:
                function = "copy" if first.dtype == row.outputs[0][1].dtype else "other"
            elif first.dtype == row.outputs[0][1].dtype:
                function = "copy"
            if parameter:
                module = session.module_of(parameter)
        inputs, unknown = self._inputs(reads, found, place)
        labels = []
        for slot, tensor in row.outputs:
            of_output = label
            before = session.values.find(tensor).last
            if slot in row.written and before is not None and before.role in KEPT and place.phase != "backward":
                of_output = Label(before.role, before.parameter, before.name, before.scale)
                if before.role in GRADIENTS and place.phase == "scaling" and schema.base == "mul":
                    function = "clip_norm"
                if place.phase in ("scaling", "optimizer") and before.parameter:
                    parameter, module = before.parameter, session.module_of(before.parameter)
            labels.append((slot, tensor, of_output))
        product = functions.product_of(row.name, row.bound)
        if function in ("convolution", "transposed_convolution"):
            product = functions.product_of_convolution(row.bound, row.outputs[0][1].shape)
        location = "" if place.phase not in ("forward", "loss") else self._location(place.phase, module, name)
        name = functions.name_of_call(name, function)
        attributes = self._attributes_of(schema.attributes(row.bound), (place.phase, name, parameter or forward_id or module))
        call = Call(name, place.phase, function, "", module, attributes, location, parameter, forward_id, inputs, unknown, product)
        explain = None
        if captures.is_explained(schema.base, schema.overload):
            def explain(tensor: torch.Tensor) -> List[Node]:
                makers = [None if each.last is None or each.last.step < 0 else each.last.value for each in found]
                memory = {storage_of(written) for slot, written, _ in labels if slot in row.written}
                return captures.nodes_of(schema.base, row.bound, tensor, reads, makers,
                                         [storage_of(read.tensor) in memory for read in reads])
        cast_from = first if function == "cast" and first is not None and narrows(first, labels[0][1]) else None
        results = self._emit(call, labels, cast_from, explain)
        if not results:
            return
        result = results[0]
        if function == "cast":
            result.source = source
        elif scaled_by is not None:
            result.source, result.unscaled_loss = source, session.number_in(reads[0].tensor)
        if schema.base in ("div", "mul") and isinstance(row.bound.get("other"), (int, float)) and row.bound["other"]:
            result.divisor = float(row.bound["other"]) if schema.base == "div" else 1.0 / float(row.bound["other"])
        if edge is not None and not parameter:
            target = session.watch.target(edge)
            if target is not None:
                session.gradient_of(result, target, -1)
        if place.phase == "backward" and task == -1:
            for each in row.bound.values():
                of_loss = session.values.find(each).last if isinstance(each, torch.Tensor) else None
                if of_loss is not None and of_loss.step >= 0:
                    session.gradient_of(result, of_loss.value, -1)
        self._map(schema, row, result, module)

    def _map(self, schema: functions.Schema, row: _Row, made: Made, module: str) -> None:
        """The node that autograd made for this op, if it made one."""
        nodes, sequence = self._session.nodes, self._sequence() - 1
        given: List[int] = []
        numbers: Dict[str, List[int]] = {}
        for read in row.reads:
            numbers.setdefault(read.argument, []).append(read.number)
        for argument in schema.arguments:
            if not argument.is_tensor:
                continue
            value = row.bound[argument.name]
            if value is None:
                given.append(-1)
            for index, tensor in enumerate(tensors_in(value)):
                if tensor.dtype in DTYPES:
                    read_as = numbers.get(argument.name, [])
                    given.append(read_as[index] if index < len(read_as) else -1)
        node = backward.Node(made.value.op, module, None, made.role == "weight_cast", tuple(given),
                             any(tensor._is_view() for slot, tensor in row.outputs if slot in row.written))
        tensors = tensors_in(list(row.bound.values()))
        if self._makes_node(tensors):
            nodes.add(sequence, node)
        elif not torch.is_grad_enabled():
            nodes.add_custom(sequence, node)

    def _forward_of(self, node: Any) -> Optional[backward.Node]:
        return None if node is None else self._session.nodes.find(node._sequence_nr())

    def _sum_of(self, schema: functions.Schema, row: _Row, node: Any) -> Optional[backward.Edge]:
        """Where autograd adds up gradients that meet: the edge along which they came."""
        watch = self._session.watch
        if schema.base != "add" or len(row.reads) != 2:
            return None
        if node is not None and node._sequence_nr() != watch.last:
            return None
        for read in row.reads:
            edge = watch.handed_on.get(storage_of(read.tensor))
            if edge is not None:
                return edge
        return None

    def _location(self, phase: str, module: str, name: str) -> str:
        count = self._calls.get((phase, module, name), 0)
        self._calls[phase, module, name] = count + 1
        key = (phase, module, name, count)
        location = self._locations.get(key)
        if location is None:
            location = self._locations[key] = line_of_user()
        return location

    def _attributes_of(self, attributes: str, place: Tuple[Any, ...]) -> str:
        """Attributes of a call, with name=varies for those that differ from call to call of its op: each text is kept for good."""
        if self._pass != self._session.steps.passes:
            self._pass, self._counts = self._session.steps.passes, {}
        count = self._counts[place] = self._counts.get(place, -1) + 1
        key = (*place, count)
        merged = self._attributes[key] = functions.attributes_of_all(self._attributes.get(key, attributes), attributes)
        return merged

    def _inputs(self, reads: Sequence[functions.Read], found: List[Found], place: Place) -> Tuple[List[Value], bool]:
        session = self._session
        inputs: List[Value] = []
        others: List[Value] = []
        unknown = False
        for read, each in zip(reads, found):
            if each.last is CONSTANT and not each.others:
                continue
            tensor = read.tensor
            if place.phase == "loss" and session.is_new_input(each.last):
                target = session.source(tensor, "input", "", "target")
                each = Found(target, (), target is not None)
            if each.last is not None and each.last.step >= 0:
                inputs += [NOTHING] * (read.number - len(inputs)) + [each.last.value]
                others += [made.value for made in each.others if made.step >= 0]
            unknown = unknown or (not each.complete and tensor.dtype in DTYPES and tensor.numel() > 0)
        if others:  # behind all that the function counts
            last = max(read.number for read in reads)
            inputs += [NOTHING] * (last + 1 - len(inputs)) + others
        return inputs, unknown

    def _emit(self, call: Call, outputs: List[Tuple[int, torch.Tensor, Label]], cast_from: Optional[torch.Tensor],
              explain: Optional[Callable[[torch.Tensor], List[Node]]] = None) -> List[Made]:
        """Tells the recorder of a call that has run."""
        session = self._session
        try:
            op, identity = session.recorder.begin_op(call)
        except Refused as refusal:
            session.refused(str(refusal))
            for _, tensor, _ in outputs:
                session.values.forget(tensor)
            return []
        results = []
        for slot, tensor, label in outputs:
            made = Made(op, Value(identity, slot), session.steps.number, call.phase, call.module, call.function, label.role,
                        label.parameter, label.name, label.scale)
            if tensor.dtype in DTYPES:
                try:
                    session.recorder.output(op, slot, on_host(tensor), label, None if cast_from is None else on_host(cast_from))
                    if explain is not None and session.recorder.wants_capture(op, slot):
                        nodes = explain(tensor)
                        if nodes:
                            session.recorder.set_capture(op, slot, nodes)
                except Refused as refusal:
                    session.refused(str(refusal))
                    session.values.forget(tensor)
                    continue
            session.values.write(tensor, made)
            results.append(made)
        try:
            session.recorder.end_op(op)
        except Refused as refusal:
            session.refused(str(refusal))
        return results

    def emit(self, call: Call, outputs: List[Tuple[int, torch.Tensor, Label]]) -> List[Made]:
        """As _emit, for what is no op of torch."""
        return self._emit(call, outputs, None)
