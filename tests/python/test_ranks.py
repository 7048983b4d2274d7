"""Reports and tables of a folder with the traces of a run of two processes."""

import os
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, torch

import ulpscope
from ulpscope._library import Recorder

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Ranks(Case):
    def train(self, path, rank):
        """As the process of a rank would; the one of rank 1 meets a NaN."""

        def make(run, options):
            return Recorder({**run, "run_id": "0123456789abcdef", "rank": rank, "world_size": 2}, options)

        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with self.watch(ulpscope.record(path, model, optimizer, make_recorder=make)):
            for step in range(4):
                x = torch.randn(8, 4)
                if rank == 1 and step == 3:
                    x[2, 1] = float("nan")
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), torch.zeros(8, dtype=torch.long)).backward()
                optimizer.step()

    def test_a_folder_is_one_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for rank in (0, 1):
                self.train(os.path.join(folder, f"rank{rank}.h5"), rank)
            report = ulpscope.report(folder)
            self.assertEqual(report.verdict, "broken", report.text)
            self.assertRegex(report.text, r"rank 1")
            self.assertIn(report.text.splitlines()[0].split(": ")[1][:20], report._repr_html_())
            steps = ulpscope.load(folder).table("steps")
            self.assertEqual([(row["rank"], row["step"]) for row in steps], [(rank, step) for rank in (0, 1) for step in range(4)])


if __name__ == "__main__":
    unittest.main()
