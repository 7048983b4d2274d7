"""Traces as the library writes them and the program reads them. ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM say which."""

import math
import os
import tempfile
import unittest
import warnings

from recorded import NEEDS_TORCH, Case, torch

import ulpscope

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Trace(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.h5")
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.LayerNorm(64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        self.rule = torch.randn(20, 3)

    def train(self, steps, autocast=None, scaler=None, spoil=None, rate=1e-2):
        optimizer = torch.optim.AdamW(self.model.parameters(), rate)
        losses, gradients = [], []
        with self.watch(ulpscope.record(self.path, self.model, optimizer, scaler)):
            for number in range(steps):
                x = torch.randn(32, 20)
                y = (x @ self.rule).argmax(1)
                if number == spoil:
                    x[3, 4] = math.nan
                optimizer.zero_grad()
                with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                    loss = torch.nn.functional.cross_entropy(self.model(x), y)
                (loss if scaler is None else scaler.scale(loss)).backward()
                losses.append(loss.item())
                gradients.append(self.model[3].weight.grad.clone())
                if scaler is None:
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
        return losses, gradients

    def rows(self, table):
        return ulpscope.load(self.path).table(table)

    def test_steps_and_statistics(self):
        losses, gradients = self.train(12)
        self.assertEqual([row["loss"] for row in self.rows("steps")], losses)
        rows = [row for row in self.rows("stats") if row["role"] == "weight_gradient" and row["parameter"] == "3.weight"]
        self.assertEqual(len(rows), 12)
        for row, gradient in zip(rows, gradients):
            wide = gradient.double()
            self.assertEqual(row["count"], gradient.numel())
            self.assertEqual(row["zeros"], int((gradient == 0).sum()))
            self.assertEqual(row["largest"], float(wide.abs().max()))
            self.assertTrue(math.isclose(row["sum_of_squares"], float(wide.square().sum()), rel_tol=1e-9))

    def test_healthy_runs(self):
        for autocast, scaler in ((None, None), (torch.bfloat16, None),
                                 (torch.float16, torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10))):
            with self.subTest(autocast=autocast):
                if os.path.exists(self.path):
                    os.remove(self.path)
                self.train(40, autocast, scaler)
                report = ulpscope.report(self.path)
                self.assertEqual(report.verdict, "ok", report.text)

    def test_nan_in_the_data(self):
        self.train(20, spoil=9)
        report = ulpscope.report(self.path)
        self.assertEqual(report.verdict, "broken")
        self.assertIn("step 9", report.text)

    def test_file_that_exists(self):
        self.train(2)
        with self.assertRaisesRegex(FileExistsError, "overwrite=True"):
            ulpscope.record(self.path, self.model)

    def test_folder_that_does_not_exist(self):
        with self.assertRaisesRegex(FileNotFoundError, "is no folder, so that run.h5 cannot be written"):
            ulpscope.record(os.path.join(self.path, "no", "run.h5"), self.model)

    def test_file_that_cannot_be_written(self):
        """It is said when the recording begins, and the training goes on, with the same bits."""
        self.train(3)
        expected = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.setUp()
        folder = os.path.dirname(self.path)
        too_long = os.path.join(folder, "x" * 300 + ".h5")
        self.path = too_long
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            began = []
            hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: began.append(len(said)))
            self.train(3)
            hook.remove()
        self.assertEqual([str(each.message) for each in said], [f"ulpscope records nothing: {too_long} cannot be written: File name too long"])
        self.assertEqual(began[0], 1, "it was said after the first forward pass had begun")
        for parameter, each in zip(self.model.parameters(), expected):
            self.assertTrue(torch.equal(parameter, each))
        self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
