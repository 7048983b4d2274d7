"""The examples of docs/pytorch.md run. So do docs/pytorch_tour.md and docs/case_study_ddp.md, whose commands print what these
show, but for numbers, and README.md shows what its example prints."""

import contextlib
import inspect
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from recorded import NEEDS_TORCH, torch

import ulpscope

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
NOT_BUILT = "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set"

sys.path.insert(0, os.path.join(ROOT, "scripts"))
from check_docs import EXIT, not_printed


def page(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks(text):
    """The fenced blocks of a page, as pairs of their kind and their text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M)


def parted(console):
    """The commands of a block, each with the lines that are shown of its output."""
    commands = []
    for line in console.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


class InFolder(unittest.TestCase):
    """A folder that holds examples/, as the project's does."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        os.symlink(os.path.join(ROOT, "examples"), "examples")


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Reference(InFolder):
    def setUp(self):
        super().setUp()
        self.text = page("docs/pytorch.md")

    @unittest.skipIf(not BUILT, NOT_BUILT)
    def test_examples(self):
        names = {}
        examples = [example for kind, example in blocks(self.text) if kind == "python"]
        self.assertGreater(len(examples), 1)
        for example in examples:
            exec(compile(example, "example", "exec"), names)  # as a reader would, one after the other
        self.assertIsInstance(names["report"], ulpscope.Report)

    def test_options(self):
        given = set(inspect.signature(ulpscope.record).parameters)
        tables = re.findall(r"^\| (?:argument|option) \| meaning \|\n((?:\|.*\n)+)", self.text, re.M)
        listed = {name.strip() for table in tables for row in re.findall(r"^\| ([a-z_, ]+) \|", table, re.M) for name in row.split(",")}
        self.assertEqual(given, listed)

    def test_signatures(self):
        """The functions that programs call have each argument by name, with its default, and say what it is."""
        from ulpscope._options import Options
        from ulpscope.torch.preflight import Preflight

        def arguments(function):
            return {name: (each.kind, each.default) for name, each in inspect.signature(function).parameters.items()
                    if name != "self"}

        by_keyword = {name: default for name, (kind, default) in arguments(ulpscope.record).items() if kind == inspect.Parameter.KEYWORD_ONLY}
        self.assertEqual(by_keyword, {name: default for name, (_, default) in arguments(Options).items()})
        self.assertEqual(arguments(ulpscope.preflight), arguments(Preflight.__init__))
        for function in (ulpscope.record, ulpscope.preflight):
            for name in arguments(function):
                self.assertRegex(function.__doc__, rf"\b{name}\b")
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'lvel'"):
                function(None, None, None, lvel="stats")
        for function in (ulpscope.record, ulpscope.preflight, ulpscope.opcheck, ulpscope.report, ulpscope.findings, ulpscope.load):
            self.assertRegex(function.__doc__, r"(?i)\braises?\b")


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, NOT_BUILT)
class Walked(InFolder):
    def walk(self, path):
        """Does what a page has, from its beginning to its end; every output that it shows has to be printed."""
        names, printed, compared = {}, None, 0
        for kind, text in blocks(page(path)):
            if kind == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(text, path, "exec"), names)
                printed = out.getvalue()
            elif kind == "text":
                self.assert_printed(text.splitlines(), printed, text)
                compared += 1
            elif kind == "console":
                for command, shown in parted(text):
                    self.assert_printed(shown, self.output(command), command)
                    compared += 1
        return compared

    def assert_printed(self, shown, printed, what):
        stale = not_printed(shown, printed.rstrip("\n").splitlines())
        self.assertIsNone(stale, f"{what}\ndoes not print\n{stale}\nbut\n{printed}")

    def output(self, line):
        """Runs a command and returns what it prints. Scripts run in this process, which has imported torch."""
        match = EXIT.search(line)
        words = shlex.split(EXIT.sub("", line))
        if words[0] == "python" and words[1].endswith(".py"):
            with mock.patch.object(sys, "argv", words[1:]), contextlib.redirect_stdout(io.StringIO()) as out:
                runpy.run_path(words[1], run_name="__main__")
            return out.getvalue()
        words = {"ulpscope": [os.environ["ULPSCOPE_PROGRAM"]], "python": [sys.executable],
                 "torchrun": [sys.executable, "-m", "torch.distributed.run"]}[words[0]] + words[1:]
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, int(match.group(1)) if match else 0, f"{line}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_tour(self):
        self.assertEqual(self.walk("docs/pytorch_tour.md"), 11)

    def test_case_study(self):
        self.assertEqual(self.walk("docs/case_study_ddp.md"), 9)

    def test_readme(self):
        """The first block of Python is the two lines, and the block of text behind it what they print of a script without its cast."""
        of_readme = blocks(page("README.md"))
        first = next(i for i, (kind, _) in enumerate(of_readme) if kind == "python")
        self.assertEqual((first, of_readme[first + 1][0]), (0, "text"))
        script = page("examples/pytorch/custom_function.py")
        for line in re.findall(r"^(?:with|print).*", of_readme[first][1], re.M):
            self.assertIn(line.replace("run.h5", "custom_function.h5").rstrip("):"), script)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(script.replace(", cast_inputs=torch.float32", ""), "custom_function.py", "exec"), {"__name__": "__main__"})
        self.assert_printed(of_readme[first + 1][1].splitlines(), out.getvalue().replace("custom_function.h5", "run.h5"), "README.md")


if __name__ == "__main__":
    unittest.main()
