"""A recorder that keeps what it is told, by names, for tests of what the recording of PyTorch tells."""

import ctypes
import os
import re
import sys
import unittest
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple, Optional, Sequence, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

try:
    import torch
except ImportError:
    torch = None

from ulpscope._library import Refused, load_library
from ulpscope.torch.signals import holds_signals

NEEDS_TORCH = "torch is not installed"

_u8, _u32, _u64, _i32, _i64, _double = (
    ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_double)
_text, _pointer = ctypes.c_char_p, ctypes.c_void_p


class _Value(ctypes.Structure):
    _fields_ = [("op", _u64), ("slot", _u32)]


class _Call(ctypes.Structure):
    _fields_ = [("size", _u32), ("name", _u32), ("module", _u32), ("attributes", _u32), ("location", _u32),
                ("parameter", _u32), ("phase", _i32), ("function", _i32), ("kind", _i32), ("id", _u64), ("forward_id", _u64),
                ("inputs", ctypes.POINTER(_Value)), ("inputs_count", _u32), ("inputs_unknown", _u8),
                ("product", ctypes.POINTER(_i64))]


class _Tensor(ctypes.Structure):
    _fields_ = [("size", _u32), ("data", _pointer), ("dtype", _i32), ("rank", _i32), ("shape", ctypes.POINTER(_i64)),
                ("strides", ctypes.POINTER(_i64))]


class _Label(ctypes.Structure):
    _fields_ = [("size", _u32), ("role", _i32), ("parameter", _u32), ("name", _u32), ("scale", _double)]


class _Node(ctypes.Structure):
    _fields_ = [("size", _u32), ("operand", _i32), ("parent", _i64), ("term", _i64), ("terms", _i64), ("made_by", _Value),
                ("shape", ctypes.POINTER(_i64)), ("rank", _i32), ("overwritten", _u8), ("element", _i64), ("value", _double)]


class _Update(ctypes.Structure):
    _fields_ = [("size", _u32), ("learning_rate", _double), ("before", ctypes.POINTER(_Tensor)),
                ("after", ctypes.POINTER(_Tensor)), ("gradient", ctypes.POINTER(_Tensor)),
                ("update", ctypes.POINTER(_Tensor))]


class _Addition(ctypes.Structure):
    _fields_ = [("size", _u32), ("factor", _double), ("before", ctypes.POINTER(_Tensor)), ("addend", ctypes.POINTER(_Tensor)),
                ("after", ctypes.POINTER(_Tensor))]


class Statistics(ctypes.Structure):
    """ulpscope_statistics"""

    _fields_ = [("size", _u32), ("known", _u8), ("before_rounding", _u8), ("rounding_known", _u8),
                *((name, _u64) for name in ("count", "nan", "positive_infinity", "negative_infinity", "zeros", "negatives")),
                *((name, _double) for name in ("smallest", "largest", "sum", "sum_of_squares")),
                ("bins", _u64 * 255), ("below_range", _u64), ("above_range", _u64),
                *((name, _u64) for name in ("flushed", "subnormal", "inexact_subnormal", "overflowed", "rescued", "saturated"))]


class UpdateCounts(ctypes.Structure):
    """ulpscope_update_counts"""

    _fields_ = [("size", _u32), ("learning_rate", _double), ("nonzero", _u64), ("lost", _u64), ("weight_squares", _double),
                ("update_squares", _double), ("gradient_dot_update", _double)]


class Value(NamedTuple):
    """Output `slot` of the op with the id `op`."""

    op: int
    slot: int


NOTHING = Value(0, 0)  # in the place of an output that was not recorded


class Label(NamedTuple):
    """The part that an output plays."""

    role: str = "activation"
    parameter: str = ""
    name: str = ""
    scale: float = 1.0


class Call(NamedTuple):
    """An op call, described before it runs."""

    name: str
    phase: str
    function: str = "other"
    kind: str = ""
    module: str = ""
    attributes: str = ""
    location: str = ""
    parameter: str = ""
    forward_id: int = 0
    inputs: Sequence[Value] = ()
    inputs_unknown: bool = False
    product: Optional[Tuple[int, int, int, int, int]] = None
    id: int = 0  # 0: by the rule


class Recorded:
    """The methods of ulpscope._library.Recorder, refusing what the library refuses; `steps` has what came, step by step."""

    def __init__(self, run, options):
        self.run, self.options = run, options
        self.settings, self.notes, self.warnings, self.steps, self.sources, self.triggers = [], [], [], [], [], []
        self.coverage = {}
        self.closed = False
        self.step = None
        self._ops = {}
        self._next = 0
        self._identities = {}

    def close(self):
        self.closed, self.step = True, None

    def failure(self):
        return ""

    def stop_reason(self):
        return ""

    def trigger(self, why):
        self.triggers.append(why)

    def leave_out_ops(self):
        self.step.left_out = True

    def setting(self, name, value, kind, given):
        assert not self.steps, "settings come before the first step ends"
        self.settings.append((name, value, kind))

    def source(self, number, name, samples):
        self.sources.append((number, name, samples))

    def batch(self, source, samples):
        self.step.batches.append((self._pass[0], self._pass[1], source, list(samples)))

    def metric(self, name, kind, value):
        if name.startswith("recording."):
            self.coverage[name[len("recording."):]] = value
            return
        if self.step is None:
            raise Refused(f"metric '{name}': expected a step that began")
        self.step.metrics.append((name, kind, value))

    def note(self, text):
        if text.startswith("Ops of PyTorch were seen by"):
            self.way = text
        else:
            self.notes.append(text)

    def warning(self, text):
        self.warnings.append(text)

    def begin_step(self, number):
        assert self.step is None, "a step begins in a step"
        self.step = SimpleNamespace(number=number, calls=[], passes=[], batches=[], metrics=[], result=None, left_out=False)
        self._pass, self._counts = ("forward", 0, 0), Counter()

    def begin_pass(self, phase, micro_batch, loss):
        if loss > 255:
            raise Refused(f"a pass of loss {loss}; expected at most 255")
        self._pass = (phase, micro_batch, loss)
        self.step.passes.append(self._pass)
        self._counts = Counter()

    def end_step(self, result):
        self.step.result = result
        self.steps.append(self.step)
        self.step, self._ops = None, {}

    def begin_op(self, call):
        assert self.step is not None, f"{call.name} stands outside of a step"
        self._next += 1
        key = (call.phase, call.name) + ((call.parameter,) if call.parameter else (call.forward_id or call.module,))
        count = self._counts[key]
        if not call.id:
            self._counts[key] += 1
        identity = call.id or hash(key + (count,)) & (2**63 - 1)
        one = (call.name, call.module, call.phase, call.function, call.kind)
        if self._identities.setdefault(identity, one) != one:
            raise Refused(f"op '{call.name}': its id is that of {self._identities[identity]}; expected one id for each op")
        recorded = SimpleNamespace(call=call, id=identity, count=count, outputs={}, ended=False, gradient_of={}, updates={}, additions={}, measures={},
                                   micro_batch=self._pass[1], loss=self._pass[2])
        self.step.calls.append(recorded)
        self._ops[self._next] = recorded
        return self._next, identity

    def wants_capture(self, op, slot):
        """As ulpscope_wants_capture, from the values themselves."""
        recorded = self._told(op, slot)
        read = [call.outputs[value.slot] for value in recorded.call.inputs for call in self.step.calls
                if call.id == value.op and call is not recorded and value.slot in call.outputs]
        return not recorded.outputs[slot].values.isfinite().all() and all(each.values.isfinite().all() for each in read)

    def was_finite(self, op, slot):
        return bool(self._told(op, slot).outputs[slot].values.isfinite().all())

    def set_capture(self, op, slot, nodes, count):
        self._told(op, slot)

    def end_op(self, op):
        self._ops[op].ended = True

    def drop_op(self, op):
        self.step.calls.remove(self._ops.pop(op))

    def output(self, op, slot, tensor, label, cast_from=None):
        recorded = self._ops[op]
        assert not recorded.ended
        if slot in recorded.outputs:
            raise Refused(f"op '{recorded.call.name}': output {slot} was told twice")
        if cast_from is not None and tensor.dtype not in ("f16", "bf16"):
            raise Refused(f"a cast to {tensor.dtype}; expected one to f16 or bf16, whose roundings are counted")
        recorded.outputs[slot] = SimpleNamespace(label=label, dtype=tensor.dtype, shape=tensor.shape, cast_from=cast_from,
                                                 values=tensor.values)

    def _told(self, op, slot):
        recorded = self._ops.get(op)
        if recorded is None:
            raise Refused(f"call {op} is not one of this step")
        if slot not in recorded.outputs:
            raise Refused(f"op '{recorded.call.name}': output {slot} was not told")
        return recorded

    def fill(self, op, slot, statistics):
        """The statistics of an output of a device, which has no values here."""
        self._told(op, slot).outputs[slot].statistics = statistics

    def fill_update(self, op, slot, counts):
        self._told(op, slot).updates[slot] = counts

    def set_label(self, op, slot, label):
        self._told(op, slot).outputs[slot].label = label

    def set_gradient_of(self, op, slot, value, input_index):
        self._told(op, slot).gradient_of[slot] = (value, input_index)

    def set_addition(self, op, slot, factor, before, addend, after):
        self._told(op, slot).additions[slot] = SimpleNamespace(factor=factor, before=before, addend=addend, after=after)

    def set_measure(self, op, slot, name, value):
        self._told(op, slot).measures[slot, name] = value

    def set_update(self, op, slot, learning_rate, before, after, gradient, update):
        self._told(op, slot).updates[slot] = SimpleNamespace(
            learning_rate=learning_rate,
            **{name: None if tensor is None else tensor.values
               for name, tensor in (("before", before), ("after", after), ("gradient", gradient), ("update", update))})


class Names:
    """The names of the numbers of the library's enumerations: those that docs/trace_format.md has."""

    def __init__(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "trace_format.md")
        with open(path, encoding="utf-8") as file:
            self._words = sorted(set(re.findall(r"[a-z][a-z0-9_]*", file.read())))
        self._known = {}

    def __call__(self, enumeration, number):
        if enumeration not in self._known:
            look_up = getattr(load_library(), "ulpscope_" + enumeration)
            look_up.argtypes, look_up.restype = [_text], _i32
            self._known[enumeration] = {look_up(word.encode()): word for word in self._words}
        return self._known[enumeration][number]


NAMES = Names()


def _values_of(tensor):
    """A copy of the memory that a told tensor describes."""
    shape = [tensor.shape[i] for i in range(tensor.rank)]
    strides = [tensor.strides[i] for i in range(tensor.rank)] if tensor.strides else None
    dtype = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[NAMES("dtype", tensor.dtype)]
    size = torch.empty((), dtype=dtype).element_size()
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    span = 1
    for extent, stride in zip(shape, strides or [0] * len(shape)):
        span += (extent - 1) * stride
    if strides is None:
        span = torch.Size(shape).numel()
    memory = torch.frombuffer(bytearray(ctypes.string_at(tensor.data, span * size)), dtype=dtype)
    return memory.view(shape) if strides is None else memory.as_strided(shape, strides).clone()


_Op, _Slot = ctypes.c_uint64, ctypes.c_uint32


class Calls(ctypes.Structure):
    """ulpscope_aten_calls: functions that tell a Recorded what the library would tell a recorder."""

    _fields_ = [
        ("intern", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _pointer, ctypes.c_size_t, ctypes.POINTER(_u32))),
        ("begin_op", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(_Call), ctypes.POINTER(_Op), ctypes.POINTER(_Op))),
        ("end_op", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op)),
        ("drop_op", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op)),
        ("output", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Tensor), ctypes.POINTER(_Label),
                                    ctypes.POINTER(_Tensor))),
        ("set_label", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Label))),
        ("set_gradient_of", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, _Value, _i32)),
        ("set_update", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Update))),
        ("set_addition", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Addition))),
        ("set_measure", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, _u32, ctypes.c_double)),
        ("wants_capture", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_u8))),
        ("was_finite", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_u8))),
        ("set_capture", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Node), _u32)),
        ("output_later", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(_Tensor), ctypes.POINTER(_Label))),
        ("wants_statistics", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, ctypes.POINTER(_u8))),
        ("fill", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(Statistics))),
        ("fill_update", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _Op, _Slot, ctypes.POINTER(UpdateCounts))),
        ("last_error", ctypes.CFUNCTYPE(_pointer)),
    ]

    @classmethod
    def telling(cls, made):
        """The functions that tell made[0]."""
        texts, error = [""], ctypes.create_string_buffer(1000)
        by_text = {"": 0}

        def guarded(body):
            @holds_signals
            def call(_, *arguments):
                # A model that was compiled in place is called just now: this code is no part of it.
                compiles = torch._C._dynamo.eval_frame.set_eval_frame(None)
                try:
                    body(*arguments)
                    return 0
                except Exception as problem:  # nothing may be raised into the library
                    error.value = str(problem).encode()[:999]
                    return 1 if isinstance(problem, Refused) else 2
                finally:
                    torch._C._dynamo.eval_frame.set_eval_frame(compiles)

            return call

        def intern(data, size, number):
            text = ctypes.string_at(data, size).decode()
            if text not in by_text:
                by_text[text] = len(texts)
                texts.append(text)
            number[0] = by_text[text]

        def label_of(label):
            given = label.contents
            return Label(NAMES("role", given.role), texts[given.parameter], texts[given.name], given.scale)

        def told(tensor):
            if not tensor:
                return None
            given = tensor.contents
            return SimpleNamespace(dtype=NAMES("dtype", given.dtype), shape=tuple(given.shape[i] for i in range(given.rank)),
                                   values=_values_of(given))

        def output_later(op, slot, tensor, label):
            given = tensor.contents
            made[0].output(op, slot, SimpleNamespace(dtype=NAMES("dtype", given.dtype), values=None,
                                                     shape=tuple(given.shape[i] for i in range(given.rank))), label_of(label))

        def wants_statistics(op, level):
            level[0] = 2

        def begin_op(call, token, identity):
            given = call.contents
            inputs = [Value(given.inputs[i].op, given.inputs[i].slot) for i in range(given.inputs_count)]
            product = tuple(given.product[i] for i in range(5)) if given.product else None
            function = "other" if given.function == -1 else NAMES("function", given.function)
            kind = "" if given.kind == -1 else NAMES("kind", given.kind)
            token[0], identity[0] = made[0].begin_op(Call(
                texts[given.name], NAMES("phase", given.phase), function, kind, texts[given.module], texts[given.attributes],
                texts[given.location], texts[given.parameter], given.forward_id, inputs, bool(given.inputs_unknown), product,
                given.id))

        def output(op, slot, tensor, label, cast_from):
            made[0].output(op, slot, told(tensor), label_of(label), told(cast_from))

        def set_update(op, slot, update):
            given = update.contents
            made[0].set_update(op, slot, given.learning_rate, told(given.before), told(given.after), told(given.gradient),
                               told(given.update))

        def wants_capture(op, slot, wanted):
            wanted[0] = made[0].wants_capture(op, slot)

        def was_finite(op, slot, answer):
            answer[0] = made[0].was_finite(op, slot)

        bodies = {
            "intern": intern,
            "begin_op": begin_op,
            "end_op": lambda op: made[0].end_op(op),
            "drop_op": lambda op: made[0].drop_op(op),
            "output": output,
            "set_label": lambda op, slot, label: made[0].set_label(op, slot, label_of(label)),
            "set_gradient_of": lambda op, slot, value, index: made[0].set_gradient_of(op, slot, Value(value.op, value.slot), index),
            "set_update": set_update,
            "set_addition": lambda op, slot, addition: made[0].set_addition(op, slot, addition.contents.factor, *(
                _values_of(tensor.contents)
                for tensor in (addition.contents.before, addition.contents.addend, addition.contents.after))),
            "set_measure": lambda op, slot, name, value: made[0].set_measure(op, slot, texts[name], value),
            "wants_capture": wants_capture,
            "was_finite": was_finite,
            "set_capture": lambda op, slot, nodes, count: made[0].set_capture(op, slot, nodes, count),
            "output_later": output_later,
            "wants_statistics": wants_statistics,
            "fill": lambda op, slot, statistics: made[0].fill(op, slot, Statistics.from_buffer_copy(statistics.contents)),
            "fill_update": lambda op, slot, counts: made[0].fill_update(op, slot, UpdateCounts.from_buffer_copy(counts.contents)),
        }
        types = dict(cls._fields_)
        functions = [types[name](guarded(body)) for name, body in bodies.items()]
        functions.append(types["last_error"](lambda: ctypes.addressof(error)))
        return cls(*functions)


def recording(model, optimizer=None, scaler=None, path="not_written.h5", **options):
    """A recording into a Recorded, which is `.made` afterwards."""
    from ulpscope.torch.record import Recording

    made = []

    def make(run, given):
        made.append(Recorded(run, given))
        return made[0]

    make.calls = Calls.telling(made)
    started = Recording(path, model, optimizer, scaler, make_recorder=make, **options)
    started.made = made
    tracker = started._session.tracker
    close = tracker.close

    def closing():
        started.depth, started.unmapped, started.waits = tracker.depth(), dict(tracker.counts("unmapped")), tracker.waits()
        close()

    tracker.close = closing
    _started.append(started)
    return started


_started = []  # recordings of the test that runs


class Case(unittest.TestCase):
    """Tests, each of which fails where a recorder refused a call that it does not expect."""

    def run(self, result=None):
        self.may_refuse = False
        self.addCleanup(self._check_refusals)
        return super().run(result)

    def watch(self, started):
        """Counts a recording that the library makes as one of the test's."""
        _started.append(started)
        return started

    def _check_refusals(self):
        recordings, _started[:] = list(_started), []
        if not self.may_refuse:
            self.assertEqual([dict(each._session.refusals) for each in recordings if each._session.refusals], [])
