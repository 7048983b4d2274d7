"""A recorder that keeps what it is told, by names, for tests of what the recording of PyTorch tells."""

import os
import sys
import unittest
from collections import Counter
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

try:
    import torch
except ImportError:
    torch = None

from ulpscope._library import Refused

NEEDS_TORCH = "torch is not installed"


class Recorded:
    """The methods of ulpscope._library.Recorder, refusing what the library refuses; `steps` has what came, step by step."""

    def __init__(self, run, options):
        self.run, self.options = run, options
        self.settings, self.notes, self.warnings, self.steps = [], [], [], []
        self.closed = False
        self.step = None
        self._ops = {}
        self._next = 0
        self._identities = {}

    def close(self):
        self.closed, self.step = True, None

    def failure(self):
        return ""

    def setting(self, name, value, kind, given):
        assert not self.steps and self.step is None, "settings come before the first step"
        self.settings.append((name, value, kind))

    def metric(self, name, kind, value):
        if self.step is None:
            raise Refused(f"metric '{name}': expected a step that began")
        self.step.metrics.append((name, kind, value))

    def note(self, text):
        self.notes.append(text)

    def warning(self, text):
        self.warnings.append(text)

    def begin_step(self, number):
        assert self.step is None, "a step begins in a step"
        self.step = SimpleNamespace(number=number, calls=[], passes=[], metrics=[], result=None)
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
        count, self._counts[key] = self._counts[key], self._counts[key] + 1
        identity = hash(key + (count,)) & (2**63 - 1)
        one = (call.name, call.module, call.phase, call.function, call.kind)
        if self._identities.setdefault(identity, one) != one:
            raise Refused(f"op '{call.name}': its id is that of {self._identities[identity]}; expected one id for each op")
        recorded = SimpleNamespace(call=call, id=identity, count=count, outputs={}, ended=False, gradient_of={}, updates={},
                                   micro_batch=self._pass[1], loss=self._pass[2])
        self.step.calls.append(recorded)
        self._ops[self._next] = recorded
        return self._next, identity

    def wants_capture(self, op, slot):
        return False

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
        assert tensor.data == tensor.owner.data_ptr()
        recorded.outputs[slot] = SimpleNamespace(label=label, dtype=tensor.dtype, shape=tensor.shape, cast_from=cast_from,
                                                 values=tensor.owner.detach().clone())

    def _told(self, op, slot):
        recorded = self._ops.get(op)
        if recorded is None:
            raise Refused(f"call {op} is not one of this step")
        if slot not in recorded.outputs:
            raise Refused(f"op '{recorded.call.name}': output {slot} was not told")
        return recorded

    def set_label(self, op, slot, label):
        self._told(op, slot).outputs[slot].label = label

    def set_gradient_of(self, op, slot, value, input_index):
        self._told(op, slot).gradient_of[slot] = (value, input_index)

    def set_update(self, op, slot, learning_rate, before, after, gradient, update):
        self._told(op, slot).updates[slot] = SimpleNamespace(
            learning_rate=learning_rate,
            **{name: None if tensor is None else tensor.owner.detach().clone()
               for name, tensor in (("before", before), ("after", after), ("gradient", gradient), ("update", update))})


def recording(model, optimizer=None, scaler=None, path="not_written.h5", **options):
    """A recording into a Recorded, which is `.made` afterwards."""
    from ulpscope.torch.record import Recording

    made = []

    def make(run, given):
        made.append(Recorded(run, given))
        return made[0]

    started = Recording(path, model, optimizer, scaler, make_recorder=make, **options)
    started.made = made
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
