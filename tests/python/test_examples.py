"""The scripts of examples/pytorch run as they are, and the traces that they leave tell what the scripts know of themselves; with
the line that a script is about taken out of it, the report names the fault."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, torch

import ulpscope

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "pytorch")
BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
OK = "OK: no numerical problem in"


def missing(*names):
    return next((f"{name} is not installed" for name in names if importlib.util.find_spec(name) is None), None)


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Examples(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def run_script(self, file, without=None):
        """The names that a script leaves, and what it prints; of one without some text, its report."""
        path = os.path.join(FOLDER, file)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        if without is not None:
            self.assertEqual(text.count(without), 1)
            text = text.replace(without, "")
        names, printed = {"__name__": "__main__", "__file__": path}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, path, "exec"), names)
        return names, printed.getvalue()

    def steps(self, trace):
        return ulpscope.load(trace).table("steps")

    def assert_losses(self, trace, losses, relative=0.0):
        rows = self.steps(trace)
        self.assertEqual(len(rows), len(losses))
        for row, loss in zip(rows, losses):
            self.assertLessEqual(abs(row["loss"] - loss), relative * abs(loss), row)

    def test_plain(self):
        names, printed = self.run_script("plain.py")
        self.assertIn(f"{OK} 80 steps", printed)
        self.assert_losses("plain.h5", names["losses"])
        self.assertIn(f"test accuracy {names['accuracy']():.0%}", printed)

    def test_accumulation(self):
        names, printed = self.run_script("accumulation.py")
        self.assertIn(f"{OK} 30 steps", printed)
        self.assert_losses("accumulation.h5", names["losses"], 1e-6)  # four numbers, added in another precision
        norms = [(row["gradient_norm"], row["clipped_gradient_norm"]) for row in self.steps("accumulation.h5")]
        for before, after in norms:
            self.assertLessEqual(abs(after - min(before, 1.0)), 1e-5 * after)  # clipping divides by the norm + 1e-6
        self.assertGreater(max(before for before, _ in norms), 1.0)
        self.assertEqual({row["micro_batch"] for row in ulpscope.load("accumulation.h5").table("stats")} - {0}, {1, 2, 3})

    def test_accumulation_without_unscaling(self):
        self.run_script("accumulation.py", without="        scaler.unscale_(optimizer)\n")
        self.assertEqual(ulpscope.report("accumulation.h5").data["causes"][0]["code"], "updates.clipped_while_scaled")

    def test_gan(self):
        names, printed = self.run_script("gan.py")
        self.assertIn(f"{OK} 60 steps", printed)
        self.assert_losses("gan.h5", names["losses"], 1e-6)

    def test_custom_function(self):
        names, printed = self.run_script("custom_function.py")
        self.assertIn(f"{OK} 40 steps", printed)
        self.assert_losses("custom_function.h5", names["losses"])

    def test_custom_function_in_fp16(self):
        names, _ = self.run_script("custom_function.py", without=", cast_inputs=torch.float32")
        self.assertTrue(all(abs(loss - torch.tensor(32.0).log()) < 1e-3 for loss in names["losses"]))  # nothing is learned
        report = ulpscope.report("custom_function.h5")
        cause = report.data["causes"][0]
        self.assertEqual((report.verdict, cause["code"], cause["op"], cause["step"]), ("broken", "range.nonfinite", "mul", 0))
        square = re.search(r"(\d+) \* \1 = ([\d,]+) exceeds 65,504", " ".join(report.text.split()))
        self.assertLess(abs(int(square[1]) ** 2 - int(square[2].replace(",", ""))), int(square[1]) * 2)

    def test_ddp(self):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "PYTHONPATH": os.path.join(FOLDER, "..", "..", "python"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*launcher, os.path.join(FOLDER, "ddp.py")], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{OK} 40 steps", done.stdout)
        rows = self.steps("ddp")
        self.assertEqual([(row["rank"], row["step"]) for row in rows], [(rank, step) for rank in (0, 1) for step in range(40)])
        self.assertNotEqual(rows[0]["loss"], rows[40]["loss"])  # each process has samples of its own

    @unittest.skipIf(torch is None or missing("lightning"), "lightning is not installed")
    def test_lightning(self):
        _, printed = self.run_script("with_lightning.py")
        self.assertIn(f"{OK} 48 steps", printed)
        self.assertIn("BF16, 48 steps", printed)

    @unittest.skipIf(torch is None or missing("transformers", "accelerate"), "transformers and accelerate are not installed")
    def test_trainer(self):
        names, printed = self.run_script("with_trainer.py")
        self.assertIn(f"{OK} 48 steps", printed)
        losses = [row["loss"] for row in self.steps("trainer.h5")]
        told = names["trainer"].state.log_history[-1]["train_loss"]  # the mean over all steps
        self.assertLess(abs(sum(losses) / len(losses) - told), 1e-3 * told)

    def test_all_are_listed(self):
        with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as file:
            listed = set(re.findall(r"\[(\w+\.py)\]", file.read()))
        self.assertEqual(listed, {name for name in os.listdir(FOLDER) if name.endswith(".py")})


if __name__ == "__main__":
    unittest.main()
