"""Recordings that keep the rows of some steps: the last ones before something happened, or each Nth. ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM
say which library and program."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from recorded import NEEDS_TORCH, Case, recording, torch

import ulpscope

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
MODULE = torch.nn.Module if torch is not None else object


class Logarithm(MODULE):
    """Takes a logarithm, of 0 in one call."""

    def __init__(self, at):
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, x):
        x = x.abs() + 1
        if self.training:
            self.calls += 1
            if self.calls - 1 == self.at:
                x = x * torch.zeros(x.shape[1])
        return x.log()


def parts(at=None, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), Logarithm(at), torch.nn.Linear(8, 3))
    return model, torch.optim.SGD(model.parameters(), 0.05)


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Cadence(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name + ".h5")

    def train(self, steps, at=None, scaler=None, between=None, evaluates=False, **options):
        """The losses and the trace of a training whose NaN begins in step `at`, after which its weights are NaN."""
        model, optimizer = parts(at)
        path = self.path("held" if options else "all")
        losses = []
        with self.watch(ulpscope.record(path, model, optimizer, scaler, overwrite=True, **options)) as run:
            for number in range(steps):
                x = torch.randn(16, 6)
                y = (x.sum(1) > 0).long()
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
                    loss = torch.nn.functional.cross_entropy(model(x), y)
                losses.append(loss.item())
                (loss if scaler is None else scaler.scale(loss)).backward()
                if scaler is None:
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
                if evaluates and number % 3 == 2:
                    model.eval()
                    with torch.no_grad():
                        model(torch.randn(4, 6))
                    model.train()
                if between is not None:
                    between(run, number)
        self.weights = [parameter.detach().clone() for parameter in model.parameters()]
        return losses, ulpscope.load(path)

    def notes(self, trace):
        return "; ".join(row["text"] for row in trace.table("events") if row["kind"] == "note")

    def steps_of(self, trace):
        return sorted({row["step"] for row in trace.table("stats")})

    def assert_same_rows(self, whole, some, steps, left_out=()):
        """Rows of the steps are those that the whole recording has."""
        for table in ("stats", "parameters"):
            wanted, found = ([{name: value for name, value in row.items() if name not in ("sequence", "tensor")}
                              for row in trace.table(table) if row["step"] in steps and row.get("op_name") not in left_out]
                             for trace in (whole, some))
            self.assertEqual(len(found), len(wanted))
            for one, other in zip(wanted, found):
                self.assertEqual(repr(one), repr(other))

    def test_nan_late_in_a_run(self):
        losses, whole = self.train(400, 340)
        report = ulpscope.report(whole.path)
        again, held = self.train(400, 340, keep_last=20, after=5)
        kept = [0, *range(321, 346)]
        self.assertEqual(repr(again), repr(losses))
        self.assertEqual(self.steps_of(held), kept)
        self.assert_same_rows(whole, held, set(kept))
        self.assertEqual(repr([row["loss"] for row in held.table("steps")]), repr(losses))
        self.assertEqual([row["step"] for row in held.table("steps") if row["level"] == "stats"], kept)
        self.assertLess(14 * len(held.table("stats")), len(whole.table("stats")))
        # It names the op and the module that the whole recording does.
        found = ulpscope.report(held.path)
        self.assertEqual(found.verdict, "broken")
        titles = [[finding["title"] for finding in each.findings if finding["code"].startswith("range.")] for each in (report, found)]
        self.assertIn("`1` (log, forward), step 340", titles[0][0])
        self.assertEqual(titles[0][0].split(" elements.")[0], titles[1][0].split(" elements.")[0])
        self.assertIn("step 340: the loss is NaN: rows of tensors were kept of steps 321 to 340", self.notes(held))
        self.assertIn("374 of 400 steps", found.text)

    def test_a_healthy_run_is_small_and_says_what_it_rests_on(self):
        _, held = self.train(300, keep_last=20, on=("nan", "skips:8", "grad_norm:10x"))
        self.assertEqual(self.steps_of(held), [0])
        report = ulpscope.report(held.path)
        self.assertEqual(report.verdict, "ok")
        self.assertIn("no numerical problem in the 1 of 300 steps whose tensors were recorded", report.text)

    def test_signals_and_calls(self):
        before = []
        old = signal.signal(signal.SIGUSR2, lambda number, frame: before.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR2, old)
        theirs = signal.getsignal(signal.SIGUSR2)

        def between(run, number):
            if number == 30:
                os.kill(os.getpid(), signal.SIGUSR1)
            if number == 50:
                os.kill(os.getpid(), signal.SIGUSR2)
            if number == 70:
                run.trigger("it looked odd")

        _, held = self.train(90, between=between, keep_last=3, after=1, on=[signal.SIGUSR1, "SIGUSR2"])
        self.assertEqual(self.steps_of(held), [0, 28, 29, 30, 31, 48, 49, 50, 51, 68, 69, 70, 71])
        self.assertEqual(before, [signal.SIGUSR2])
        self.assertIs(signal.getsignal(signal.SIGUSR2), theirs)
        self.assertEqual(signal.getsignal(signal.SIGUSR1), signal.SIG_DFL)
        notes = [row["text"] for row in held.table("events") if row["kind"] == "note" and "rows of tensors" in row["text"]]
        self.assertEqual([note.split(":")[1].strip() for note in notes], ["signal SIGUSR1", "signal SIGUSR2", "it looked odd"])

    def test_an_exception_that_leaves_the_block(self):
        def between(run, number):
            if number == 25:
                raise KeyError("a column")

        with self.assertRaises(KeyError):
            self.train(90, between=between, keep_last=4)
        self.assertEqual(self.steps_of(ulpscope.load(self.path("held"))), [0, 22, 23, 24, 25])

    def test_a_signal_that_ends_the_process(self):
        code = ("import os, signal, sys, torch, ulpscope\n"
                "model = torch.nn.Linear(4, 2)\n"
                "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
                "run = ulpscope.record(sys.argv[1], model, optimizer, keep_last=3, on=[signal.SIGTERM])\n"
                "for number in range(20):\n"
                "    model(torch.randn(3, 4)).square().mean().backward()\n"
                "    optimizer.step()\n"
                "    if number == 12:\n"
                "        os.kill(os.getpid(), signal.SIGTERM)\n")
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
        done = subprocess.run([sys.executable, "-c", code, self.path("killed")], env={**os.environ, "PYTHONPATH": folder},
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, -signal.SIGTERM)
        self.assertEqual(self.steps_of(ulpscope.load(self.path("killed"))), [0, 9, 10, 11])  # step 12 has not ended

    def test_stop_on(self):
        seen = []
        losses, held = self.train(60, 40, between=lambda run, number: seen.append((run.stop_requested, run.stop_reason)), stop_on="nan")
        self.assertEqual(len(losses), 60)  # training goes on
        self.assertEqual([row["step"] for row in held.table("steps")], list(range(41)))
        self.assertEqual([stop for stop, _ in seen], [False] * 41 + [True] * 19)
        self.assertIn("NaN in output", seen[-1][1])
        self.assertIn("stop_on=nan at step 40", self.notes(held))

    def test_bits(self):
        def scaler():
            return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)

        for make in (lambda: None, scaler):
            wanted, _ = self.train(40, scaler=make())
            weights = self.weights
            for options in (dict(keep_last=5), dict(sample=4), dict(sample=7, keep_last=2)):
                losses, _ = self.train(40, scaler=make(), **options)
                self.assertEqual(losses, wanted)
                for one, other in zip(weights, self.weights):
                    self.assertTrue(torch.equal(one, other))

    # Each Nth step.

    def test_sampled_steps_are_those_of_a_whole_recording(self):
        for make in (lambda: None, lambda: torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=4)):
            scaled = make() is not None
            losses, whole = self.train(45, scaler=make(), evaluates=True)
            _, some = self.train(45, scaler=make(), evaluates=True, sample=10)
            self.assertEqual(self.steps_of(some), [0, 10, 20, 30, 40])
            # Weights are read again where a step behind one that was not looked into begins.
            self.assert_same_rows(whole, some, {0, 10, 20, 30, 40}, left_out=("source",))
            sources = [row["step"] for row in some.table("stats") if row["op_name"] == "source" and row["role"] == "weight"]
            self.assertEqual(sources, [step for step in (0, 10, 20, 30, 40) for _ in range(4)])
            wanted, found = whole.table("steps"), some.table("steps")
            self.assertEqual([row["loss"] for row in found], losses)
            for name in ("step", "loss", "learning_rate", "scale_before", "scale_after", "skipped"):
                self.assertEqual([row[name] for row in found], [row[name] for row in wanted], name)
            self.assertEqual(any(row["skipped"] for row in found if row["step"] % 10), scaled)
            self.assertEqual([row["level"] for row in found], ["stats" if step % 10 == 0 else "off" for step in range(45)])

    def test_nothing_is_called_between_sampled_steps(self):
        model, optimizer = parts()
        hooks = lambda module: len(module._forward_hooks) + len(module._forward_pre_hooks)
        seen = []
        with recording(model, optimizer, sample=3) as run:
            adapter, tracker = run._session.adapter, run._session.tracker
            with mock.patch.object(adapter, "begin", wraps=adapter.begin) as begun, mock.patch.object(adapter, "end", wraps=adapter.end) as ended:
                for number in range(7):
                    optimizer.zero_grad()
                    x = torch.randn(5, 6)
                    out = model(x)
                    seen.append((run._session.sampling.is_looking, hooks(model[0]), begun.call_count, ended.call_count))
                    torch.nn.functional.cross_entropy(out, torch.zeros(5, dtype=torch.long)).backward()
                    optimizer.step()
        # The adapter began before the first step.
        self.assertEqual(seen, [(True, 2, 0, 0), (False, 0, 0, 1), (False, 0, 0, 1), (True, 2, 1, 1), (False, 0, 1, 2), (False, 0, 1, 2), (True, 2, 2, 2)])
        self.assertEqual([step.left_out for step in run.made[0].steps], [False, True, True, False, True, True, False])
        self.assertEqual([len(step.calls) > 0 for step in run.made[0].steps], [True, False, False, True, False, False, True])
        self.assertFalse(hasattr(torch.autograd.backward, "__wrapped__"))
        self.assertFalse(hasattr(torch.amp.GradScaler.scale, "__wrapped__"))

    def test_losses_of_loops(self):
        """Micro-batches, and a backward pass that is none of the model's."""
        model, optimizer = parts()
        other = torch.nn.Linear(6, 1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        losses = []
        with recording(model, optimizer, scaler, sample=4) as run:
            for _ in range(6):
                total = 0.0
                for _ in range(3):
                    x = torch.randn(5, 6)
                    loss = torch.nn.functional.cross_entropy(model(x), torch.zeros(5, dtype=torch.long)) / 3
                    scaler.scale(loss).backward()
                    total += loss.item()
                    other(x).sum().backward()
                losses.append(total)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        steps = run.made[0].steps
        self.assertEqual(len(steps), 6)
        for step, loss in zip(steps, losses):
            self.assertTrue(math.isclose(step.result.loss, loss, rel_tol=1e-12))
            self.assertEqual(step.result.scales, (8.0, 8.0))

    def test_losses_that_the_program_changes_afterwards(self):
        """As where it divides them for its log, before the step ends."""
        for make in (lambda: None, lambda: torch.amp.GradScaler("cpu", init_scale=8.0)):
            scaler = make()
            with self.subTest(scaled=scaler is not None):
                model, optimizer = parts()
                losses = []
                with recording(model, optimizer, scaler, sample=4) as run:
                    for _ in range(6):
                        optimizer.zero_grad()
                        loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.zeros(5, dtype=torch.long))
                        losses.append(loss.item())
                        (loss if scaler is None else scaler.scale(loss)).backward()
                        with torch.no_grad():
                            loss *= 3
                        if scaler is None:
                            optimizer.step()
                        else:
                            scaler.step(optimizer)
                            scaler.update()
                self.assertEqual([step.result.loss for step in run.made[0].steps], losses)

    def test_backward_passes_that_begin_elsewhere(self):
        """In an iterator of losses, which can be read once, and at an edge of the graph, which is no tensor."""

        def several(loss):
            torch.autograd.backward(each for each in (loss, loss * 2))
            return 3 * loss.item()

        def edge(loss):
            torch.autograd.backward(torch.autograd.graph.get_gradient_edge(loss), torch.ones(()))

        for goes_back in (several, edge):
            gradients, losses = [], []
            for sample in (None, 1, 3):
                with self.subTest(goes_back=goes_back.__name__, sample=sample):
                    model, optimizer = parts()
                    losses.clear()
                    with contextlib.nullcontext() if sample is None else recording(model, optimizer, sample=sample) as run:
                        for _ in range(5):
                            optimizer.zero_grad()
                            loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.zeros(5, dtype=torch.long))
                            losses.append(goes_back(loss))
                            optimizer.step()
                    gradients.append([parameter.grad.clone() for parameter in model.parameters()])
                    if sample is not None:
                        self.assertEqual(run._session.failed, "")
                        self.assertEqual(len(run.made[0].steps), 5)
                        for step, wanted in zip(run.made[0].steps, losses):
                            if wanted is None:
                                self.assertIsNone(step.result.loss)
                            else:
                                self.assertAlmostEqual(step.result.loss, wanted, places=5)
                        self.assertTrue(all(map(torch.equal, gradients[0], gradients[-1])))

    def test_a_nan_of_a_step_that_was_not_recorded(self):
        _, some = self.train(30, 14, sample=10)
        report = ulpscope.report(some.path)
        self.assertEqual(report.verdict, "broken")
        title = next(finding["title"] for finding in report.findings if finding["code"] == "range.nonfinite")
        self.assertIn("step 20", title)
        self.assertIn("It came in a step that was not recorded: one from step 11 to step 19.", title)

    def test_a_nan_that_is_older_than_what_is_held(self):
        _, held = self.train(30, 14, keep_last=3, on=[signal.SIGUSR1],
                             between=lambda run, number: run.trigger("look") if number == 25 else None)
        report = ulpscope.report(held.path)
        self.assertEqual(self.steps_of(held)[:4], [0, 23, 24, 25])
        title = next(finding["title"] for finding in report.findings if finding["code"] == "range.nonfinite")
        self.assertIn("First recorded NaN", title)
        self.assertIn("It reads what was written in step 22, which was not recorded", title)

    def test_options(self):
        model, optimizer = parts()
        for options, error in ((dict(sample=0), ValueError), (dict(keep_last=-1), ValueError), (dict(after="5"), TypeError),
                               (dict(keep_last=3, on="nam"), ValueError), (dict(keep_last=3, on=[1.5]), TypeError),
                               (dict(keep_last=3, on="grad_norm:1x"), ValueError), (dict(keep_last=3, on=[9999]), ValueError),
                               (dict(stop_on="inf"), ValueError)):
            with self.assertRaises(error, msg=str(options)):
                ulpscope.record(self.path("never"), model, optimizer, **options)
        self.assertFalse(os.path.exists(self.path("never")))


if __name__ == "__main__":
    unittest.main()
