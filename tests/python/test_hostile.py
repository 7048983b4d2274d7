"""Recordings that are given nonsense, forked, or closed from elsewhere: training goes on, and nothing is lost."""

import os
import tempfile
import threading
import unittest
from unittest import mock

from recorded import NEEDS_TORCH, Case, recording, torch

import ulpscope
from ulpscope._library import Refused


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Hostile(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def test_arguments_are_checked_before_training(self):
        for options, error in (({"name": 5}, TypeError), ({"modules": 5}, TypeError), ({"phases": ["forward"]}, TypeError),
                               ({"phases": "sideways"}, ValueError), ({"every": "2"}, TypeError), ({"every": 0}, ValueError),
                               ({"max_bytes": 200000}, ValueError), ({"precision": "fp17"}, ValueError), ({"on": "nan"}, ValueError), ({"after": 9}, ValueError)):
            with self.subTest(**options), self.assertRaises(error):
                recording(self.model, self.optimizer, **options)
        with self.assertRaisesRegex(TypeError, "scaler is no GradScaler: str"):
            recording(self.model, self.optimizer, "scaler")
        with self.assertRaisesRegex(ValueError, "model is an empty list"):
            recording([], self.optimizer)
        with self.assertRaisesRegex(TypeError, "overwrite is neither True nor False: 'no'"):
            recording(self.model, self.optimizer, overwrite="no")
        with self.assertRaisesRegex(TypeError, "path is no str and no os.PathLike: int"):
            ulpscope.record(5, self.model)
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(IsADirectoryError, "is a folder; expected the name of a file"):
            ulpscope.record(folder, self.model)
        self.assertEqual(len(self.model._forward_pre_hooks), 0)

    def test_patterns_that_fit_no_module_are_told(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 2)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with self.assertWarnsRegex(RuntimeWarning, "modules has 'encoder.[*]', which fits no module of the model: no op is recorded for it") as told:
            with recording(model, optimizer, modules="1.?,encoder.*,0") as run:
                train(model, optimizer, 2)
        self.assertEqual(len(told.warnings), 1)
        self.assertTrue(any("'encoder.*'" in note for note in run.made[0].notes), run.made[0].notes)

    def test_a_class_that_extends_an_optimizer(self):
        class Extended(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        torch.optim.SGD(self.model.parameters(), 0.1)  # has the base's step hooked, too
        optimizer = Extended(self.model.parameters(), 0.1)
        with recording(self.model, optimizer) as run:
            losses = train(self.model, optimizer, 4)
        self.assertEqual([step.result.loss for step in run.made[0].steps], losses)

    def test_a_forked_child_records_nothing(self):
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 2)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    train(self.model, self.optimizer, 2)
                    run.close()
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            train(self.model, self.optimizer, 1)
        self.assertEqual(len(run.made[0].steps), 3)

    def test_a_closed_run_is_used_again(self):
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 2)
        with self.assertWarnsRegex(RuntimeWarning, "is closed: nothing more is recorded in it") as told:
            run.step()
            run.metric("loss", 1.0)
            with run:
                train(self.model, self.optimizer, 1)
        self.assertEqual(len(told.warnings), 1)
        with run.pause():
            train(self.model, self.optimizer, 1)
        run.close()
        self.assertEqual(len(run.made[0].steps), 2)

    def test_a_signal_closes_while_an_op_is_told(self):
        """Handlers run where Python does, as where the line of an op is looked for."""
        with recording(self.model, self.optimizer) as run:
            def line():
                run.close()
                return "train.py:1"

            with mock.patch("ulpscope.torch.session.line_of_user", side_effect=line):
                train(self.model, self.optimizer, 3)
            self.assertTrue(run.made[0].closed)
            self.assertEqual(len(run.made[0].steps), 1, "it ends with the step in which the signal came")
        self.assertEqual(run._session.failed, "")
        self.assertFalse(run._session.tracker.handle)

    def test_a_hook_closes_in_the_backward_pass(self):
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 1)
            hook = self.model.register_full_backward_hook(lambda *_: run.close())
            train(self.model, self.optimizer, 2)
            hook.remove()
        self.assertTrue(run.made[0].closed)

    def test_another_thread_closes_while_this_one_trains(self):
        for _ in range(10):
            with recording(self.model, self.optimizer) as run:
                thread = threading.Thread(target=run.close)
                train(self.model, self.optimizer, 1)
                thread.start()
                train(self.model, self.optimizer, 3)
                thread.join()
                train(self.model, self.optimizer, 1)
            self.assertTrue(run.made[0].closed)

    def test_recordings_that_do_not_begin_leave_nothing(self):
        for _ in range(6):
            with mock.patch("ulpscope.torch.record._hook_module", side_effect=RuntimeError("no hooks")):
                with self.assertRaisesRegex(RuntimeError, "no hooks"):
                    recording(self.model, self.optimizer)
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 1)
        self.assertEqual(len(run.made[0].steps), 1)

    def test_optimizers_that_cannot_be_read(self):
        """There are four recordings at most through callbacks: one that did not begin is none."""

        class Strange:
            param_groups = [{}]

        for _ in range(5):
            with self.assertRaises(KeyError):
                recording(self.model, Strange())
        with recording(self.model, self.optimizer) as run:
            losses = train(self.model, self.optimizer, 2)
        self.assertEqual([step.result.loss for step in run.made[0].steps], losses)
        way = os.environ.get("ULPSCOPE_ADAPTER", "callbacks")
        self.assertIn("callbacks" if way == "callbacks" else "dispatch", run.made[0].way.split(",")[0])

    def test_an_optimizer_that_is_none_of_torch(self):
        """Nothing calls hooks of its steps: one warning, unless the program ends steps itself."""

        class Own:
            def __init__(self, parameters):
                self.param_groups = [{"params": list(parameters), "lr": 0.1}]

            def step(self):
                with torch.no_grad():
                    for parameter in self.param_groups[0]["params"]:
                        parameter -= 0.1 * parameter.grad

            def zero_grad(self):
                for parameter in self.param_groups[0]["params"]:
                    parameter.grad = None

        optimizer = Own(self.model.parameters())
        said = "Steps of Own are not seen"
        with self.assertWarnsRegex(RuntimeWarning, said), recording(self.model, optimizer) as run:
            train(self.model, optimizer, 3)
        self.assertEqual(len(run.made[0].steps), 1)
        self.assertTrue(any(said in told for told in run.made[0].warnings))
        with recording(self.model, optimizer) as run:
            for _ in range(3):
                train(self.model, optimizer, 1)
                run.step()
        self.assertEqual(len(run.made[0].steps), 3)
        self.assertEqual(run.made[0].warnings, [])

    def test_a_file_that_is_no_trace_is_not_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "notes.h5")
            for data in (b"notes", b""):
                with open(path, "wb") as file:
                    file.write(data)
                with self.assertRaisesRegex(FileExistsError, "notes.h5 is no trace, so that none replaces it; remove it first"):
                    ulpscope.record(path, self.model, self.optimizer, overwrite=True)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), data)

    def test_a_recorder_that_refuses_to_begin(self):
        """As where another process writes the file by then: one warning at the first step, and the program goes on."""
        from ulpscope.torch.record import Recording

        def refuses(run, options):
            raise Refused("ulpscope_open: 'run.h5' is being written by another process")

        with self.assertWarnsRegex(RuntimeWarning, "ulpscope records nothing: ulpscope_open: 'run.h5' is being written") as told:
            with Recording("run.h5", self.model, self.optimizer, make_recorder=refuses) as run:
                train(self.model, self.optimizer, 3)
        self.assertEqual(len(told.warnings), 1)
        self.assertIn("being written", run.refusal)

    def test_a_working_folder_that_is_gone(self):
        from ulpscope.torch import adapter

        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            with recording(self.model, self.optimizer, path="run.h5") as run, mock.patch.dict(adapter._shown, clear=True):
                os.rmdir(folder)
                losses = train(self.model, self.optimizer, 2)
            os.chdir(here)
            os.mkdir(folder)
        self.assertEqual(run._session.failed, "")
        self.assertEqual([step.result.loss for step in run.made[0].steps], losses)
        self.assertTrue(any(call.call.location.startswith("test_hostile.py:") for call in run.made[0].steps[0].calls))

    def test_what_another_thread_calls_is_counted(self):
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 2)
            thread = threading.Thread(target=lambda: train(self.model, self.optimizer, 3))
            thread.start()
            thread.join()
            train(self.model, self.optimizer, 1)
        modules = sum(1 for _ in self.model.modules())
        self.assertEqual(run.made[0].coverage["calls_of_other_threads"], 3 * modules)
        self.assertEqual(len(run.made[0].steps), 3)

    def test_another_thread_evaluates_and_closes(self):
        with recording(self.model, self.optimizer) as run:
            train(self.model, self.optimizer, 2)

            def evaluate():
                with torch.no_grad():
                    self.model(torch.randn(4, 3))
                run.close()

            thread = threading.Thread(target=evaluate)
            thread.start()
            thread.join()
        self.assertTrue(run.made[0].closed)
        self.assertEqual(len(run.made[0].steps), 2)
        self.assertFalse([call for step in run.made[0].steps for call in step.calls if call.call.phase == "evaluation"])
        self.assertEqual(len(self.model._forward_pre_hooks), 0)


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not os.environ.get("ULPSCOPE_PROGRAM"), "ULPSCOPE_PROGRAM is not set")
class Empty(unittest.TestCase):
    def test_a_report_of_nothing(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.h5")
            model = torch.nn.Linear(3, 2)
            ulpscope.record(path, model).close()
            report = ulpscope.report(path)
            self.assertEqual((report.verdict, [finding["code"] for finding in report.findings][:1]), ("broken", ["run.no_steps"]))
            self.assertIn("No step was recorded", report.text)


if __name__ == "__main__":
    unittest.main()
