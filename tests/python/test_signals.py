"""Handlers of signals that raise, as that of Ctrl-C, while the library is told something: their exceptions are the program's."""

import contextlib
import functools
import signal
import sys
import unittest
from unittest import mock

from recorded import NEEDS_TORCH, Case, recording, torch

if torch is not None:
    from ulpscope.torch import device
    from ulpscope.torch.fallback import Fallback
    from ulpscope.torch.guard import Guard
    from ulpscope.torch.session import Session

# The library calls these in a step of `train`.
CALLED = ("on_backward", "on_backward_ended", "on_scale_of_call", "on_unscaled", "on_scaler_updated", "on_batch", "on_line")


class Alarm(Exception):
    """A handler raises it."""


def alarm(number, frame):
    raise Alarm(number)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Signals(Case):
    def setUp(self):
        super().setUp()
        self.lost = []
        patched = mock.patch.object(sys, "unraisablehook", self.lost.append)
        patched.start()
        self.addCleanup(patched.stop)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGALRM, alarm)):
            self.addCleanup(signal.signal, number, signal.signal(number, handler))

    def raises_in(self, stack, owner, name, number):
        """The first call of a method raises the signal."""
        original, calls = getattr(owner, name), []

        @functools.wraps(original)
        def method(this, *args):
            if not calls:
                calls.append(name)
                signal.raise_signal(number)
            return original(this, *args)

        method.__code__ = method.__code__.replace(co_name=name)
        stack.enter_context(mock.patch.object(owner, name, method))
        return calls

    def train(self, steps=3):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(2 * steps, 4)), batch_size=2)
        with recording(model, optimizer, scaler) as self.recording:
            self.began = 0
            for x, in loader:
                self.began += 1
                scaler.scale(model(x).sum()).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                with torch.no_grad():
                    model(x)

    def assert_the_programs(self, raised, calls, method, number=signal.SIGINT):
        with self.assertRaises(raised):
            self.train()
        self.assertEqual((calls, self.lost), ([method], []))
        self.assertLess(self.began, 3, "it comes soon")
        self.assertEqual(self.recording._session.failed, "")
        self.assertTrue(self.recording.made[0].closed)
        self.assertIsNone(sys.getprofile())
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertIs(signal.getsignal(signal.SIGALRM), alarm)

    def test_an_exception_of_a_handler_is_the_programs(self):
        for method in CALLED:
            for number, raised in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Alarm)):
                with self.subTest(method=method, number=number), contextlib.ExitStack() as stack:
                    calls = self.raises_in(stack, Session, method, number)
                    self.assert_the_programs(raised, calls, method)

    def test_recording_goes_on_behind_one(self):
        model = torch.nn.Linear(2, 2)
        with contextlib.ExitStack() as stack, recording(model) as run:
            calls = self.raises_in(stack, Guard, "__exit__", signal.SIGINT)
            with self.assertRaises(KeyboardInterrupt):
                model(torch.ones(1, 2))
            self.assertEqual((calls, run._session.tracker.state.muted), (["__exit__"], 0))

    def test_statistics_of_a_device(self):
        with mock.patch.object(device, "takes_host_as_device", True), \
                mock.patch("ulpscope.torch.record.choose", lambda way: (Fallback(), "Ops of PyTorch were seen by a test.")):
            for method in ("_measure", "_wait", "_keep", "_ask", "_retain"):
                with self.subTest(method=method), contextlib.ExitStack() as stack:
                    calls = self.raises_in(stack, Fallback, method, signal.SIGINT)
                    self.assert_the_programs(KeyboardInterrupt, calls, method)

    def test_two_signals_in_one_call(self):
        heard = []
        signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
        line = Session.on_line

        def on_line(session, context):
            for number in (signal.SIGALRM, signal.SIGINT, signal.SIGALRM):
                signal.raise_signal(number)
                self.assertEqual(heard, [])
            return line(session, context)

        with mock.patch.object(Session, "on_line", on_line), self.assertRaises(KeyboardInterrupt):
            self.train()
        self.assertEqual((heard, self.lost), ([signal.SIGALRM] * 2, []))

    def test_a_profiler_stays(self):
        heard, seen = [], []
        signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))

        def profile(*_):
            seen.append(sys.getprofile())

        with contextlib.ExitStack() as stack:
            calls = self.raises_in(stack, Session, "on_line", signal.SIGALRM)
            sys.setprofile(profile)
            self.addCleanup(sys.setprofile, None)
            self.train()
            self.assertIs(sys.getprofile(), profile)
        self.assertEqual((calls, heard), (["on_line"], [signal.SIGALRM]))
        self.assertEqual(set(seen), {profile})

    def test_recordings_that_end_in_another_order_keep_the_programs_handler(self):
        model = torch.nn.Linear(2, 2)
        first, second = recording(model), recording(model)
        first.close()
        second.close()
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(Alarm):
            signal.raise_signal(signal.SIGALRM)


if __name__ == "__main__":
    unittest.main()
