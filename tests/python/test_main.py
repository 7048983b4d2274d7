"""python -m ulpscope: verbs of the program, and scripts that are recorded without being changed."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

from recorded import NEEDS_TORCH, torch

import ulpscope

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ulpscope.__file__)))
BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
NEEDS_BUILD = "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set"

PROGRAM = """#!{python}
import json, signal, sys
if sys.argv[1:] == ["signal"]:
    signal.raise_signal(signal.SIGINT)
print(json.dumps([sys.argv[1:], sys.stdin.read(), signal.getsignal(signal.SIGINT) is signal.default_int_handler]))
sys.exit(7)
"""

TELLS = """
import json, sys
print(json.dumps([sys.argv, sys.path[0], __file__, __name__, sys.modules["__main__"].__dict__ is globals()]))
"""

TRAINS = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
with torch.no_grad():
    model(torch.randn(4, 8))
for step in range(6):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_python(self, *arguments, text="", **environment):
        """Runs Python with the package in its path, in the scratch folder."""
        variables = {**os.environ, "PYTHONPATH": PACKAGE, **environment}
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, input=text, cwd=self.folder,
                              env={name: value for name, value in variables.items() if value is not None}, check=False)

    def ulpscope(self, *arguments, **options):
        return self.run_python("-m", "ulpscope", *arguments, **options)


class Program(Scratch):
    def setUp(self):
        super().setUp()
        self.program = self.write("ulpscope", PROGRAM.format(python=sys.executable))
        os.chmod(self.program, stat.S_IRWXU)

    def test_arguments_output_and_exit_code_are_the_programs(self):
        done = self.ulpscope("report", "run.h5", "--format", "json", text="asked", ULPSCOPE_PROGRAM=self.program)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        self.assertEqual(json.loads(done.stdout), [["report", "run.h5", "--format", "json"], "asked", True])

    def test_a_signal_is_the_programs(self):
        self.assertEqual(self.ulpscope("signal", ULPSCOPE_PROGRAM=self.program).returncode, -signal.SIGINT)

    def test_a_reader_that_leaves_ends_the_program(self):
        program = self.write("writes", "#!/bin/sh\ntrap - PIPE\nwhile :; do echo line || exit 3; done\n")
        os.chmod(program, stat.S_IRWXU)
        process = subprocess.Popen([sys.executable, "-m", "ulpscope", "report"], stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": PACKAGE, "ULPSCOPE_PROGRAM": program})
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(), -signal.SIGPIPE)

    def test_a_missing_program_is_said_in_a_line(self):
        for program, said in ((None, "was not found: ULPSCOPE_PROGRAM may say where it is"),
                              (self.program + "2", "cannot be run: No such file or directory")):
            done = self.ulpscope("report", "run.h5", PATH="/", ULPSCOPE_PROGRAM=program)
            self.assertEqual((done.returncode, done.stdout), (4, ""))
            self.assertRegex(done.stderr, rf"^ulpscope: the program [^\n]*{said}\n$")

    def test_the_script_of_the_package_is_not_taken_for_the_program(self):
        script = f"#!{sys.executable}\nimport sys\nfrom ulpscope.__main__ import main\nsys.exit(main())\n"
        os.chmod(self.write("bin/ulpscope", script), stat.S_IRWXU)
        bin_folder = os.path.join(self.folder, "bin")
        self.assertEqual(self.ulpscope("report", PATH=bin_folder, ULPSCOPE_PROGRAM=None).returncode, 4)
        done = self.ulpscope("report", PATH=os.pathsep.join((bin_folder, self.folder)), ULPSCOPE_PROGRAM=None)
        self.assertEqual(done.returncode, 7, done.stderr)

    def test_help_names_the_verbs_of_python(self):
        done = self.ulpscope("--help", ULPSCOPE_PROGRAM=self.program)
        self.assertRegex(done.stdout, r"\n  record +run a script")
        self.assertIn('[["--help"]', done.stdout)

    @unittest.skipIf(not BUILT, NEEDS_BUILD)
    def test_a_wrong_verb_is_the_programs_usage_error(self):
        done = self.ulpscope("bogus")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "ulpscope: there is no command 'bogus'\n")


@unittest.skipIf(not BUILT, NEEDS_BUILD)
class Record(Scratch):
    def record(self, *arguments, **environment):
        return self.ulpscope("record", *arguments, **environment)

    def both(self, *arguments):
        """A script prints the same, and ends in the same way, in Python and when it is recorded."""
        plain = self.run_python(*arguments)
        recorded = self.record(*arguments)
        self.assertEqual((recorded.returncode, recorded.stdout), (plain.returncode, plain.stdout), recorded.stderr)
        return recorded

    def test_a_script_sees_what_python_gives_it(self):
        self.write("folder/script.py", TELLS)
        os.symlink("folder/script.py", os.path.join(self.folder, "link.py"))
        self.write("package/__init__.py", "")
        self.write("package/__main__.py", TELLS)
        self.write("program/__main__.py", TELLS)
        for arguments in (["folder/script.py", "a", "-b", "--level", "--", "-m"], ["link.py"], [os.path.join(self.folder, "link.py")],
                          ["-m", "package", "--output", "c"]):
            with self.subTest(arguments=arguments):
                done = self.both(*arguments)
                self.assertTrue(json.loads(done.stdout)[-1])
        self.assertEqual(json.loads(self.record("program").stdout)[1:4],
                         json.loads(self.run_python("program").stdout)[1:4])

    def test_the_end_of_a_script_is_its_own(self):
        for name, text in (("exits", "raise SystemExit(3)"), ("says", "raise SystemExit('why')"), ("fails", "1 / 0"),
                           ("wrong", "a b"), ("goes_on", "import atexit, pickle\nclass A: pass\n"
                                                         "atexit.register(lambda: print(pickle.loads(pickle.dumps(A())).__module__))")):
            with self.subTest(name=name):
                plain = self.run_python(self.write(name + ".py", text))
                recorded = self.both(name + ".py")
                self.assertEqual(recorded.stderr.splitlines()[-1:] if plain.stderr else [], plain.stderr.splitlines()[-1:])

    def test_scripts_without_training_are_said(self):
        self.write("no_torch.py", "print(1)")
        done = self.record("no_torch.py")
        self.assertEqual((done.returncode, done.stdout), (0, "1\n"))
        self.assertEqual(done.stderr, "ulpscope: nothing was recorded: the script did not import torch\n")
        self.write("closed.py", "import sys\nsys.stderr.close()")
        self.assertEqual(self.record("closed.py").returncode, 0)

    def test_what_cannot_be_recorded_is_refused_before_the_script_runs(self):
        self.write("script.py", "print('ran')")
        self.write("there.h5", "")
        for arguments, said in ((["--output", "there.h5", "script.py"], "there.h5 exists; --overwrite replaces it"),
                                (["--output", "no/run.h5", "script.py"], "no is no folder"),
                                (["absent.py"], "there is no script absent.py"), (["--level", "all", "script.py"], "--level"),
                                (["--every", "0", "script.py"], "--every is below 1: 0"),
                                (["--on", "skips:0", "script.py"], "--on has 'skips:0'; expected"),
                                (["--phases", "forwards", "script.py"], "--phases has 'forwards'; expected some of data, forward"),
                                (["--max-bytes", "100", "script.py"], "--max-bytes is 100; a trace has room"),
                                (["--on", "nan", "script.py"], "--on is for recordings that hold steps"),
                                (["--overwrite", "--output", "there.h5", "script.py"], "there.h5 is no trace, so that none replaces it"),
                                (["."], ". is a folder without a __main__.py"),
                                ([], "arguments are required: SCRIPT")):
            with self.subTest(arguments=arguments):
                done = self.record(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(said, done.stderr.splitlines()[-1])
                self.assertNotIn("ARGUMENTS", done.stderr.splitlines()[-1])
        done = self.record("script.py", ULPSCOPE_LIBRARY="/absent.so")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertRegex(done.stderr, r"^ulpscope record: libulpscope\.so could not be loaded: [^\n]*\n$")

    @unittest.skipIf(torch is None, NEEDS_TORCH)
    def test_a_script_is_recorded_as_by_two_lines_in_it(self):
        by_hand = TRAINS.replace("for step", "run = __import__('ulpscope').record('by_hand.h5', model, optimizer, scaler)\nfor step")
        self.write("by_hand.py", by_hand + "run.close()\n")
        self.write("script.py", TRAINS)
        self.assertEqual(self.run_python("by_hand.py").returncode, 0)
        done = self.record("--output", "run.h5", "script.py")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1], f"ulpscope: recorded {self.folder}/run.h5; python -m ulpscope report run.h5 explains it")
        traces = [ulpscope.load(os.path.join(self.folder, name)) for name in ("by_hand.h5", "run.h5")]
        measured = {"seconds", "peak_memory", "time", "run_id", "location"}
        for table in ("steps", "ops", "stats"):
            by_hand, found = ([{name: value for name, value in row.items() if name not in measured} for row in trace.table(table)]
                              for trace in traces)
            self.assertGreater(len(by_hand), 0)
            self.assertEqual(by_hand, found, table)

    def test_a_torch_that_is_too_old_is_said(self):
        self.write("torch/__init__.py", "")
        self.write("script.py", "import torch\nprint(torch.__file__)\n")
        done = self.both("script.py")
        self.assertRegex(done.stderr, r"^ulpscope: nothing was recorded: [^\n]+\n$")

    @unittest.skipIf(torch is None, NEEDS_TORCH)
    def test_a_script_that_fails_leaves_its_steps(self):
        self.write("script.py", TRAINS + "    if step == 3:\n        raise SystemExit(3)\n")
        done = self.record("script.py")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(ulpscope.load(os.path.join(self.folder, "run.h5")).table("steps")), 4)

    def test_tracebacks_begin_with_the_scripts_frames(self):
        self.write("chained.py", "def fails():\n    raise ValueError(1)\ntry:\n    fails()\nexcept ValueError as error:\n"
                                 "    raise KeyError(2) from error\n")
        self.write("wrong.py", "a b")
        self.write("hooked.py", "import sys\nsys.excepthook = lambda kind, error, traceback: print(kind, traceback.tb_lineno)\n1 / 0\n")
        for name in ("chained.py", "wrong.py", "hooked.py"):
            with self.subTest(name=name):
                plain = self.run_python(os.path.join(self.folder, name))
                first, rest = self.both(os.path.join(self.folder, name)).stderr.split("\n", 1)
                self.assertEqual((first, rest), ("ulpscope: nothing was recorded: the script did not import torch", plain.stderr))

    @unittest.skipIf(torch is None, NEEDS_TORCH)
    def test_where_the_trace_is_stands_before_the_traceback(self):
        recorded = f"ulpscope: recorded {self.folder}/run.h5; python -m ulpscope report run.h5 explains it\n"
        fails = "    if step == 3:\n        raise ValueError('why')\n"
        self.write("script.py", TRAINS + fails)
        done = self.record("script.py")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f'(?s)\n{recorded}Traceback [^\n]*\n  File "{self.folder}/script.py", .*\nValueError: why\n$')
        block = TRAINS + ("import ulpscope\nwith ulpscope.record('run.h5', model, optimizer, scaler, overwrite=True):\n"
                          "    model(torch.ones(1, 8)).sum().backward()\n    raise ")
        for exception, said in (("ValueError('why')", recorded), ("KeyboardInterrupt", recorded), ("SystemExit(3)", "")):
            with self.subTest(exception=exception):
                lines = self.run_python("-c", block + exception).stderr.splitlines(keepends=True)
                self.assertEqual("".join(line for line in lines if line.startswith("ulpscope: recorded")), said, lines)
                self.assertFalse(lines[-1].startswith("ulpscope: recorded"))

    @unittest.skipIf(torch is None, NEEDS_TORCH)
    def test_a_trace_that_is_deleted_meanwhile_is_said_once_at_the_end(self):
        block = "import ulpscope\nwith ulpscope.record('out/run.h5', model, optimizer, scaler):\n"
        body = TRAINS[TRAINS.index("for step"):]
        for name, does in (("deleted", "os.unlink('out/run.h5')"), ("folder", "shutil.rmtree('out')"),
                           ("moved", "os.rename('out/run.h5', 'out/other.h5')"),
                           ("replaced", "os.unlink('out/run.h5'), open('out/run.h5', 'w').close()")):
            does = f"    if step == 3:\n        import os, shutil\n        {does}\n"
            end = "print(float(loss.detach()))\n"
            self.write("script.py", TRAINS + does + end)
            self.write("block.py", TRAINS.replace(body, block + textwrap.indent(body + does, "  ") + end))
            for run in (["-m", "ulpscope", "record", "--output", "out/run.h5", "script.py"], ["block.py"]):
                with self.subTest(name=name, run=run):
                    shutil.rmtree(os.path.join(self.folder, "out"), ignore_errors=True)
                    os.mkdir(os.path.join(self.folder, "out"))
                    done = self.run_python(*run)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertGreater(float(done.stdout), 0)
                    at = f"{self.folder}/out/run.h5"
                    self.assertEqual(done.stderr.splitlines()[1:], [
                        f"ulpscope: the trace at {at} is not this one: another file took its place while it was written"
                        if name == "replaced" else f"ulpscope: there is no trace at {at}: it was deleted or moved while it was written"])

    @unittest.skipIf(torch is None, NEEDS_TORCH)
    def test_the_environment_that_a_script_sets_is_there_when_torch_is_imported(self):
        self.write("sitecustomize.py", "import os, sys\nsys.addaudithook(lambda event, values: event == 'import' and values[0] == 'torch' "
                                       "and print(os.environ.get('OMP_NUM_THREADS')))\n")
        self.write("script.py", "import os\nos.environ['OMP_NUM_THREADS'] = '3'\nimport torch\n")
        done = self.record("script.py", PYTHONPATH=os.pathsep.join((PACKAGE, self.folder)), OMP_NUM_THREADS=None)
        self.assertEqual(done.stdout.splitlines()[0], "3", done.stderr)


if __name__ == "__main__":
    unittest.main()
