"""The examples of docs/pytorch.md run."""

import os
import re
import tempfile
import unittest

from recorded import NEEDS_TORCH, torch

import ulpscope

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "pytorch.md")
BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Documents(unittest.TestCase):
    def setUp(self):
        with open(PAGE, encoding="utf-8") as file:
            self.text = file.read()

    @unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
    def test_examples(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        names = {}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            examples = re.findall(r"```python\n(.*?)```", self.text, re.S)
            self.assertGreater(len(examples), 1)
            for example in examples:
                exec(compile(example, "example", "exec"), names)  # as a reader would, one after the other
            os.chdir(before)
        self.assertIsInstance(names["report"], ulpscope.Report)

    def test_options(self):
        import inspect

        from ulpscope.torch.record import Recording

        given = set(inspect.signature(Recording.__init__).parameters) - {"self", "make_recorder"}
        table = "\n".join(line for line in self.text.splitlines() if line.startswith("| "))
        listed = {name.strip() for row in re.findall(r"^\| ([a-z_, ]+) \|", table, re.M) for name in row.split(",")}
        self.assertEqual(given, listed - {"argument", "option"})


if __name__ == "__main__":
    unittest.main()
