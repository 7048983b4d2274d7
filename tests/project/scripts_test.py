"""The scripts that check the project can fail, and the dev script answers as it says."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# `./dev test FILTER` gives it to the tests that it runs; those that are made up here are others.
os.environ.pop("ULPSCOPE_TEST_FILTER", None)


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Tree(unittest.TestCase):
    """A scratch tree of files for a script to check."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ulpscope_tree_")
        self.root = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


class Includes(Tree):
    def check(self, path, include):
        for folder in self.root.iterdir():
            shutil.rmtree(folder)
        self.write(path, f"// A file.\n#include {include}\n")
        return run(sys.executable, ROOT / "scripts/check_includes.py", self.root)

    def test_what_architecture_allows_passes(self):
        for path, include in [
            ("base/text.h", "<vector>"), ("base/text.cpp", "<fmt/core.h>"), ("base/hdf5/file.cpp", "<hdf5.h>"),
            ("emulation/exact.cpp", "<boost/multiprecision/cpp_bin_float.hpp>"), ("emulation/simd.h", "<hwy/highway.h>"),
            ("kernels/cpu/matmul.cpp", "<oneapi/dnnl/dnnl.hpp>"), ("kernels/cpu/matmul.cpp", "<omp.h>"),
            ("kernels/statistics.cpp", '"ulpscope/emulation/format.h"'), ("trace/sink.h", '"ulpscope/trace/records.h"'),
            ("trace/hdf5_sink.cpp", '"ulpscope/base/hdf5/file.h"'), ("recorder/recorder.cpp", '"ulpscope/trace/sink.h"'),
            ("recorder/recorder.h", '"ulpscope/kernels/op_call.h"'), ("core/run/trainer.cpp", '"ulpscope/core/ops/ops.h"'),
            ("core/nn/layer_spec.h", '"ulpscope/core/settings/option.h"'), ("core/run/experiment.cpp", "<toml++/toml.h>"),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/trace/snapshot.h"'), ("analyzers/verbs/export.cpp", '"ulpscope/trace/columns.h"'),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/analyzers/findings/verdict.h"'),
            ("analyzers/totals/what_if.cpp", '"ulpscope/analyzers/subject/selection.h"'),
            ("trace/encode.h", '"ulpscope/trace/columns.h"'),
            ("cli/train.cpp", '"ulpscope/core/run/trainer.h"'), ("cli/options.cpp", "<CLI/CLI.hpp>"), ("cli/main.cpp", "<unistd.h>"),
            ("cli/train.cpp", '"ulpscope/kernels/devices.h"'), ("studies/probe.cpp", '"ulpscope/kernels/backend.h"'),
        ]:
            result = self.check(path, include)
            self.assertEqual(result.returncode, 0, f"{path} {include}: {result.stdout}")

    def test_everything_else_is_refused(self):
        for path, include, said in [
            ("base/text.cpp", '"ulpscope/emulation/format.h"', "base may not include emulation"),
            ("base/text.cpp", "<hdf5.h>", "base may not include hdf5"),
            ("emulation/format.cpp", '"ulpscope/kernels/view.h"', "may not include kernels"),
            ("emulation/format.cpp", "<omp.h>", "may not include openmp"),
            ("kernels/statistics.cpp", '"ulpscope/kernels/backend.h"', "kernels/statistics may not include kernels"),
            ("kernels/statistics.cpp", "<omp.h>", "may not include openmp"),
            ("kernels/cpu/add.cpp", '"ulpscope/core/ops/ops.h"', "kernels may not include core"),
            ("trace/reader.cpp", "<hdf5.h>", "trace/reader.cpp:2: trace may not include hdf5"),
            ("trace/reader.cpp", '"ulpscope/recorder/recorder.h"', "trace may not include recorder"),
            ("recorder/recorder.cpp", '"ulpscope/kernels/backend.h"', "recorder may not include kernels"),
            ("recorder/recorder.cpp", '"ulpscope/core/engine/dispatch.h"', "recorder may not include core"),
            ("recorder/recorder.cpp", '"ulpscope/trace/snapshot.h"', "recorder may not include trace/reader"),
            ("core/run/trainer.cpp", '"ulpscope/trace/snapshot.h"', "core may not include trace/reader"),
            ("core/run/trainer.cpp", '"ulpscope/analyzers/verbs/ranges.h"', "core may not include analyzers"),
            ("core/run/trainer.cpp", '"ulpscope/kernels/cpu/matmul.h"', "kernels' own"),
            ("studies/trial.cpp", '"ulpscope/kernels/device/block.h"', "kernels' own"),
            ("core/tensor/tensor.h", '"ulpscope/core/engine/dispatch.h"', "core/tensor may not include core/engine"),
            ("core/settings/option.h", '"ulpscope/core/tensor/tensor.h"', "core/settings may not include core/tensor"),
            ("core/nn/module.h", '"ulpscope/core/optim/adam.h"', "core/nn may not include core/optim"),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/core/run/trainer.h"', "analyzers may not include core"),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/trace/sink.h"', "analyzers may not include trace/sink"),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/trace/trace_file.h"', "analyzers may not include trace"),
            ("analyzers/verbs/ranges.cpp", '"ulpscope/analyzers/findings/scale_text.h"', "findings' own: use analyzers/findings/all.h"),
            ("analyzers/subject/run_analysis.cpp", '"ulpscope/analyzers/totals/what_if.h"',
             "analyzers/subject may not include analyzers/totals"),
            ("analyzers/history/plots.cpp", '"ulpscope/analyzers/judgements/leap.h"',
             "analyzers/history may not include analyzers/judgements"),
            ("analyzers/ranges.cpp", '"ulpscope/analyzers/report/report.h"', "analyzers/ranges.cpp lies on no floor of analyzers"),
            ("cli/main.cpp", "<hdf5.h>", "may not include hdf5"),
            ("cli/main.cpp", '"tests/support/files.h"', "not a path that starts with ulpscope/"),
            ("cli/main.cpp", "<unheard_of/library.h>", "belongs to no library"),
            ("new_folder/file.cpp", '"ulpscope/base/text.h"', "new_folder is a folder that the table"),
        ]:
            result = self.check(path, include)
            self.assertEqual(result.returncode, 1, f"{path} {include} was let through")
            self.assertIn(said, result.stdout)

    def test_imports_of_the_package_go_down(self):
        def check(name, text):
            self.write(f"python/ulpscope/{name}.py", text)
            return run(sys.executable, ROOT / "scripts/check_includes.py", self.root)

        for name, text in [("torch/session", "from .steps import Steps\nfrom .._library import Error\n"),
                           ("torch/adapter", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .session import Session\n")]:
            self.assertEqual((check(name, text).returncode, check(name, text).stdout), (0, ""))
        for name, text, said in [
            ("torch/steps", "from .session import Session\n", "steps.py:1: torch/steps may not import torch/session"),
            ("torch/steps", "def f():\n    from . import record\n", "steps.py:2: torch/steps may not import torch/record"),
            ("torch/steps", "from ..check import check\n", ""),
            ("_library", "from .torch.tracker import Tracker\n", "_library.py:1: _library may not import torch/tracker"),
            ("torch/other", "", "torch/other.py lies on no floor"),
        ]:
            result = check(name, text)
            self.assertIn(said, result.stdout)
            self.assertEqual(result.returncode, 1 if said else 0, result.stdout)
            (self.root / f"python/ulpscope/{name}.py").unlink()

    def test_slow_headers_stay_in_few_files(self):
        for name in ("a", "b"):
            self.write(f"cli/{name}.cpp", "#include <CLI/CLI.hpp>\n")
        command = [sys.executable, ROOT / "scripts/check_includes.py", self.root]
        self.assertEqual(run(*command).returncode, 0)
        self.write("cli/c.cpp", "#include <CLI/CLI.hpp>\n")
        result = run(*command)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cli11 is included by 3 files", result.stdout)


class Headers(Tree):
    def check(self, *options):
        return run(sys.executable, ROOT / "scripts/check_headers.py", *options, self.root)

    def test_a_name_that_two_headers_define_is_told_with_both(self):
        first = "namespace ulpscope {\nenum class Kind : int { a, b };\n}\n"
        for second in ("struct Kind {};", "template <typename T>\nclass Kind final : public Base<T> {\n};", "using Kind = int;",
                       "inline constexpr int Kind = 3;", "constexpr std::array<int, 2> Kind{1, 2};",
                       "int f() { return 1; }\nnamespace inner {}\nunion Kind { int a; };"):
            self.write("base/kind.h", first)
            self.write("trace/kind.h", f"namespace ulpscope {{\n{second}\n}}\n")
            result = self.check()
            self.assertEqual((result.returncode, result.stdout),
                             (1, "ulpscope::Kind is defined in base/kind.h and in trace/kind.h\n"), second)

    def test_other_scopes_declarations_and_overloads_are_no_second_definition(self):
        self.write("base/kind.h", "namespace ulpscope {\nstruct Kind {};\nint size(Kind kind);\n}\n")
        for other in ("namespace ulpscope::trace_detail {\nstruct Kind {};\n}", "namespace ulpscope {\nstruct Kind;\n}",
                      "namespace ulpscope {\nstruct Other { struct Kind {}; };\n}", "namespace ulpscope {\nint size(int);\n}",
                      "// struct Kind {};\nconst char* text = \"struct Kind {};\";", "namespace ulpscope {\nvoid f() { struct Kind {}; }\n}",
                      "namespace ulpscope {\ntemplate <>\nstruct Kind<int> {};\n}"):
            self.write("trace/kind.h", other + "\n")
            result = self.check()
            self.assertEqual((result.returncode, result.stdout), (0, ""), other)

    @unittest.skipUnless(shutil.which("c++"), "no c++")
    def test_a_header_that_needs_another_one_first_is_told(self):
        (self.root / "build/include").mkdir(parents=True)
        self.write("base/source.cpp", '#include "ulpscope/base/first.h"\n')
        self.write("base/first.h", "")
        self.write("base/alone.h", "#include <vector>\nnamespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        (self.root / "build/include/ulpscope").symlink_to(self.root)
        self.write("build/compile_commands.json", json.dumps([{
            "directory": str(self.root / "build"), "file": str(self.root / "base/source.cpp"),
            "command": f"c++ -I{self.root}/build/include -o source.o -c {self.root}/base/source.cpp"}]))
        result = self.check("--build", self.root / "build", "--alone")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertTrue((self.root / "build/headers_alone/base/alone.cpp").exists())
        self.assertFalse((self.root / "build/headers_alone/base/first.cpp").exists())
        self.write("base/alone.h", "namespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        result = self.check("--build", self.root / "build", "--alone")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ulpscope/base/alone.h does not compile alone", result.stdout)

    @unittest.skipUnless(shutil.which("c++"), "no c++")
    def test_a_header_that_hides_what_another_calls_is_told(self):
        (self.root / "build/include").mkdir(parents=True)
        self.write("base/source.cpp", "")
        self.write("base/caller.h", "#include <math.h>\nnamespace ulpscope {\ninline double f(double x) { return sqrt(x); }\n}\n")
        (self.root / "build/include/ulpscope").symlink_to(self.root)
        self.write("build/compile_commands.json", json.dumps([{
            "directory": str(self.root / "build"), "file": str(self.root / "base/source.cpp"),
            "command": f"c++ -I{self.root}/build/include -o source.o -c {self.root}/base/source.cpp"}]))
        hiding = "namespace ulpscope {\nstruct Ball {};\nBall sqrt(Ball);\n}\n"
        for name, order in (("ball", "forwards"), ("wide", "backwards")):
            header = self.write(f"base/{name}.h", hiding)
            result = self.check("--build", self.root / "build")
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"the headers do not compile together, {order}:", result.stdout)
            self.assertNotIn("alone", result.stdout.replace("headers_alone", ""))
            self.assertEqual(result.stdout.count("do not compile together"), 1)
            header.write_text(hiding.replace("sqrt", "square_root"))
            self.assertEqual(self.check("--build", self.root / "build").returncode, 0)
            header.unlink()

    @unittest.skipUnless(shutil.which("c++"), "no c++")
    def test_a_header_that_needs_the_precompiled_one_is_told(self):
        (self.root / "build/include").mkdir(parents=True)
        self.write("base/source.cpp", '#include "ulpscope/base/first.h"\n')
        self.write("base/first.h", "namespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        self.write("build/precompiled.h", "#include <vector>\n")
        (self.root / "build/include/ulpscope").symlink_to(self.root)
        self.write("build/compile_commands.json", json.dumps([{
            "directory": str(self.root / "build"), "file": str(self.root / "base/source.cpp"),
            "command": f"c++ -I{self.root}/build/include -include {self.root}/build/precompiled.h -o source.o "
                       f"-c {self.root}/base/source.cpp"}]))
        result = self.check("--build", self.root / "build", "--alone")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ulpscope/base/first.h does not compile alone", result.stdout)
        self.write("base/first.h", "#include <vector>\nnamespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        result = self.check("--build", self.root / "build", "--alone")
        self.assertEqual((result.returncode, result.stdout), (0, ""))


@unittest.skipUnless(shutil.which("clang-format-14"), "no clang-format-14")
class Format(Tree):
    def test_an_unformatted_file_is_named(self):
        shutil.copy(ROOT / ".clang-format", self.root)
        file = self.write("base/text.cpp", "int main() { return 0; }\n")
        command = [sys.executable, ROOT / "scripts/check_format.py", self.root]
        self.assertEqual(run(*command).returncode, 0)
        file.write_text("int  main( ){return 0;}\n")
        result = run(*command)
        self.assertEqual(result.returncode, 1)
        self.assertIn("text.cpp: not formatted", result.stdout)


class Docs(Tree):
    def check(self, readme, *options):
        (self.root / "docs").mkdir(exist_ok=True)
        self.write("README.md", readme)
        program = self.write("bin/ulpscope", "#!/bin/sh\necho told $*\n[ \"$1\" != fail ] || exit 3\n")
        program.chmod(0o755)
        return run(sys.executable, ROOT / "scripts/check_docs.py", program, "--root", self.root, *options)

    def test_commands_run_in_order_in_one_folder(self):
        self.assertEqual(self.check("```sh\nulpscope info > out\ngrep -q 'told info' out\nulpscope fail # exits with 3\n```\n").returncode, 0)
        self.assertEqual(self.check("```console\n$ ulpscope info\ntold info\n```\n").returncode, 0)

    def test_a_failing_command_is_named(self):
        for readme in ("```sh\nulpscope fail\n```\n", "```console\n$ ulpscope fail\n```\n", "```sh\nulpscope info # exits with 1\n```\n"):
            result = self.check(readme)
            self.assertEqual(result.returncode, 1, readme)
            self.assertIn("FAILED README.md:2", result.stdout)

    def test_a_stale_output_is_named(self):
        for shown, is_stale in (
            ("told info 7", False),  # numbers may be others
            ("...\ntold info 12", False),
            ("# what it says\ntold   info 12", False),
            ("told ranges 12", True),
            ("told FP16", True),
            ("told info 12\nand more", True),
        ):
            said = "FP32" if "FP" in shown else "info 12"
            result = self.check(f"```console\n$ ulpscope {said}\n{shown}\n```\n")
            self.assertEqual(result.returncode, 1 if is_stale else 0, shown)
            self.assertEqual("does not print" in result.stdout, is_stale, shown)
        not_compared = "<!-- output not compared: bits decide -->\n```console\n$ ulpscope info\nother\n```\n"
        self.assertEqual(self.check(not_compared).returncode, 0)
        self.assertEqual(self.check(not_compared + "```console\n$ ulpscope info\nother\n```\n").returncode, 1)
        # A document has to say where it leaves lines out.
        for shown, is_stale in (
            ("first\n...\nthird", False),
            ("...\nsecond\n...", False),
            ("first\nthird", True),
            ("second\nfirst", True),
            ("first", True),
            ("third", True),
        ):
            command = "printf 'first\\nsecond\\nthird\\n'"
            self.assertEqual(self.check(f"```console\n$ {command}\n{shown}\n```\n").returncode, 1 if is_stale else 0, shown)

    def test_what_is_not_run_is_printed(self):
        result = self.check("<!-- not run: takes minutes -->\n```sh\nulpscope fail\n```\n")
        self.assertEqual(result.returncode, 0)
        self.assertIn("not run, takes minutes: ulpscope fail", result.stdout)

    def test_generated_parts_are_compared_and_updated(self):
        stale = "<!-- generated by: ulpscope keys -->\nold\n<!-- end of generated part -->\n"
        self.assertEqual(self.check(stale).returncode, 1)
        self.assertEqual(self.check(stale, "--update").returncode, 0)
        written = (self.root / "README.md").read_text()
        self.assertIn("\ntold keys\n", written)
        self.assertEqual(self.check(written).returncode, 0)

    def test_a_dead_link_is_named(self):
        result = self.check("[gone](docs/gone.md)\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("links to docs/gone.md", result.stdout)


# Stands for a program of GoogleTest: its tests, and what becomes of each.
PROGRAM = r"""#!{PYTHON} -IS
import os, signal, sys
print("Running main() from gtest_main.cc")
listing = {LISTING!r}
tests = {TESTS!r}
if "--gtest_list_tests" in sys.argv:
    print(listing)
    sys.exit()
wanted = next(word for word in sys.argv if word.startswith("--gtest_filter=")).split("=", 1)[1].split(":")
with open({CALLS!r}, "a") as calls:
    print(len(wanted), file=calls)
status = 0
for name, does in tests.items():
    if name not in wanted:
        continue
    print(f"[ RUN      ] {{name}}", flush=True)
    if does == "crash":
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "hang":
        signal.pause()
    if does == "exit":
        sys.exit(0)
    if does == "fail":
        status = 1
        print("a.cpp:3: Failure", "it is 3, expected 4", sep="\n")
    if does == "skip":
        print("a.cpp:4: Skipped", "no h5py", sep="\n")
    word = {{"fail": "[  FAILED  ]", "skip": "[  SKIPPED ]"}}.get(does, "[       OK ]")
    print(f"{{'text without an end' if does == 'text' else ''}}{{word}} {{name}}{{', where GetParam() = 3' if does == 'fail' else ''}} (1500 ms)", flush=True)
    if does == "pass, crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "pass, exit":
        sys.exit(0)
print("[  FAILED  ] as it is told again at the end")
sys.exit(status or {STATUS})
"""


class ProgramTree(Tree):
    def program(self, tests, status=0, listing=None):
        suites = dict.fromkeys(name.split(".")[0] for name in tests)
        listing = listing or "\n".join("\n  ".join([suite + ".", *(name.split(".")[1] for name in tests if name.startswith(suite + "."))])
                                       for suite in suites)
        program = self.write("program", PROGRAM.format(PYTHON=sys.executable, LISTING=listing, TESTS=tests, STATUS=status, CALLS=str(self.root / "calls")))
        program.chmod(0o755)
        return program


class TestProgram(ProgramTree):
    """What scripts/test_program.py writes down of a program."""

    def run_tests(self, tests, *options, status=0, listing=None, pattern=None):
        (self.root / "calls").unlink(missing_ok=True)
        environment = {**os.environ} | ({"ULPSCOPE_TEST_FILTER": pattern} if pattern else {})
        result = run(sys.executable, ROOT / "scripts/test_program.py", "--prefix", "core.", *options, "--results", self.root / "results.json",
                     "--", self.program(tests, status, listing), env=environment)
        first, *lines = (json.loads(line) for line in (self.root / "results.json").read_text().splitlines())
        return result, first["tests"], {line["test"]: line["result"] for line in lines}

    def processes(self):
        calls = self.root / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def test_tests_that_pass_are_written_down_and_say_nothing(self):
        result, names, results = self.run_tests({"A.x": "pass", "A.y": "text", "B.x": "pass"})
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(names, ["core.A.x", "core.A.y", "core.B.x"])
        self.assertEqual(results, {"core.A.x": "passed", "core.A.y": "passed", "core.B.x": "passed"})
        self.assertIn('"seconds": 1.5', (self.root / "results.json").read_text())
        self.assertEqual(self.processes(), 1)

    def test_one_that_fails_is_printed_with_what_it_said(self):
        result, _, results = self.run_tests({"A.x": "pass", "A.y": "fail", "B.x": "pass"})
        self.assertEqual((result.returncode, result.stdout), (1, "core.A.y failed:\na.cpp:3: Failure\nit is 3, expected 4\n"))
        self.assertEqual(results, {"core.A.x": "passed", "core.A.y": "failed", "core.B.x": "passed"})

    def test_one_that_is_skipped_is_printed_with_the_reason(self):
        result, _, results = self.run_tests({"A.x": "skip", "A.y": "pass"})
        self.assertEqual((result.returncode, result.stdout), (0, "core.A.x: not run, no h5py\n"))
        self.assertEqual(results, {"core.A.x": "skipped", "core.A.y": "passed"})

    def test_one_that_ends_the_process_has_failed_and_the_rest_is_run_in_another(self):
        for does, said in (("crash", "core.A.y failed: the program died of SIGSEGV in it\nabout to crash\n"),
                           ("exit", "core.A.y failed: the program exited with 0 in it\n")):
            result, _, results = self.run_tests({"A.x": "pass", "A.y": does, "B.x": "pass", "B.y": "fail"})
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stdout.startswith(said), result.stdout)
            self.assertEqual(results, {"core.A.x": "passed", "core.A.y": "failed", "core.B.x": "passed", "core.B.y": "failed"})
            self.assertEqual(self.processes(), 2)

    def test_a_program_that_runs_nothing_fails_all_its_tests(self):
        result, _, results = self.run_tests({}, listing="A.\n  x\n  y", status=3)
        self.assertEqual(result.returncode, 1)
        self.assertIn("the program exited with 3 before core.A.x, core.A.y:", result.stdout)
        self.assertEqual(results, {"core.A.x": "failed", "core.A.y": "failed"})

    def test_an_end_that_is_no_success_is_a_failure(self):
        result, _, results = self.run_tests({"A.x": "pass"}, status=23)
        self.assertEqual(result.returncode, 1)
        self.assertIn("the program exited with 23 after core.A.x:", result.stdout)
        self.assertEqual(results, {"core.A.x": "passed", "core.A.x, after it": "failed"})

    def test_an_end_between_two_tests_is_a_failure_and_the_rest_is_run_in_another_process(self):
        for does in ("pass, crash", "pass, exit"):
            result, _, results = self.run_tests({"A.x": does, "B.x": "pass", "B.y": "skip"})
            self.assertEqual(result.returncode, 1)
            self.assertEqual(results, {"core.A.x": "passed", "core.A.x, after it": "failed", "core.B.x": "passed", "core.B.y": "skipped"})
            self.assertEqual(self.processes(), 2)

    def test_a_filter_finds_whole_names(self):
        tests = {"A.x": "pass", "A.y": "fail", "B.x": "pass"}
        for pattern, found in (("^core\\.A\\.x$", ["core.A.x"]), ("x", ["core.A.x", "core.B.x"]), ("re.B", ["core.B.x"]), ("none", [])):
            result, names, _ = self.run_tests(tests, pattern=pattern)
            self.assertEqual((result.returncode, names), (0, found), pattern)
            self.assertEqual(self.processes(), 1 if found else 0)

    def test_parts_are_all_of_the_tests(self):
        tests = {f"{suite}.{test}": "pass" for suite in ("A", "BSlow", "C") for test in ("x", "y", "zSlow")}
        for options, all_of in ((["--fast"], ["A.x", "A.y", "C.x", "C.y"]), ([], list(tests)),
                                (["--slow"], ["A.zSlow", "BSlow.x", "BSlow.y", "BSlow.zSlow", "C.zSlow"])):
            parts = [self.run_tests(tests, *options, "--part", f"{part}/2")[1] for part in (1, 2)]
            self.assertEqual(sorted(sum(parts, [])), [f"core.{name}" for name in all_of])
            self.assertTrue(all(parts))
        whole = [self.run_tests(tests, "--whole-suites", "--part", f"{part}/2")[1] for part in (1, 2)]
        self.assertEqual(sorted(sum(whole, [])), [f"core.{name}" for name in tests])
        self.assertEqual([sorted({name.split(".")[1] for name in part}) for part in whole], [["A", "C"], ["BSlow"]])

    def test_types_and_values_of_parameters_are_in_the_names(self):
        listing = "Typed/0.  # TypeParam = float\n  x\nAll/Each.\n  y/0  # GetParam() = fp16\n  y/1  # GetParam() = a\\b/2\nA.\n  z"
        _, names, results = self.run_tests({"Typed/0.x": "pass", "All/Each.y/0": "pass", "All/Each.y/1": "pass", "A.z": "pass"}, listing=listing)
        self.assertEqual(names, ["core.Typed.x<float>", "core.All/Each.y/fp16", "core.All/Each.y/a\\b/2", "core.A.z"])
        self.assertEqual(sorted(results), sorted(names))


class TestSuite(ProgramTree):
    """What scripts/test_suite.py makes of entries of ctest, one of them such a program."""

    def suite(self, tests, *options, others="", parts=1):
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(p NONE)\nenable_testing()\n" + "".join(
            f"add_test(NAME core.part_{part} COMMAND {sys.executable} {ROOT}/scripts/test_program.py --prefix core. --part {part}/{parts} "
            f"--results {self.root}/results_{part} -- {self.program(tests)})\nset_tests_properties(core.part_{part} PROPERTIES LABELS fast)\n"
            for part in range(1, parts + 1)) + others)
        self.write("CMakePresets.json", json.dumps({"version": 6, "configurePresets": [
            {"name": "release", "binaryDir": "${sourceDir}/build/release", "generator": "Ninja"}], "testPresets": [
            {"name": "release", "configurePreset": "release", "execution": {"noTestsAction": "error"}}]}))
        (self.root / "scripts").mkdir(exist_ok=True)
        for script in ("test_suite.py", "test_program.py"):
            shutil.copy(ROOT / "scripts" / script, self.root / "scripts")
        configured = run("cmake", "--preset", "release", cwd=self.root)
        self.assertEqual(configured.returncode, 0, configured.stderr)
        told = self.root / "tests.jsonl"
        told.unlink(missing_ok=True)
        ran = run(sys.executable, self.root / "scripts/test_suite.py", "run", "release", "--tests", told, *options)
        summary = run(sys.executable, self.root / "scripts/test_suite.py", "summary", told)
        return ran, summary.stdout.splitlines()

    def test_tests_are_counted_and_not_processes(self):
        others = ("add_test(NAME project.good COMMAND true)\nadd_test(NAME project.none COMMAND sh -c \"exit 77\")\n"
                  "set_tests_properties(project.none PROPERTIES SKIP_RETURN_CODE 77)\n")
        ran, summary = self.suite({"A.x": "pass", "A.y": "skip", "B.x": "pass"}, others=others, parts=2)
        self.assertEqual((ran.returncode, summary), (0, ["3 passed, 0 failed, 2 skipped"]), ran.stdout)
        self.assertIn("core.A.y: not run, no h5py\n", ran.stdout)

    def test_failures_are_named(self):
        ran, summary = self.suite({"A.x": "pass", "A.y": "fail", "B.x": "crash", "B.y": "pass"},
                                  others="add_test(NAME project.bad COMMAND false)\nadd_test(NAME project.gone COMMAND ${CMAKE_SOURCE_DIR}/gone)\n")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(summary[-1], "2 passed, 4 failed")
        self.assertEqual(sorted(line for line in summary if line.startswith("failed: ")),
                         [f"failed: {name}" for name in ("core.A.y", "core.B.x", "project.bad", "project.gone")])

    def test_what_was_not_run_to_its_end_has_failed(self):
        others = "set_tests_properties(core.part_1 PROPERTIES TIMEOUT 2)\n"
        for does in ("hang", "pass"):
            ran, summary = self.suite({"A.x": "pass", "A.y": does, "B.x": "pass"}, others=others)
            self.assertEqual(summary[-1], "1 passed, 2 failed" if does == "hang" else "3 passed, 0 failed", ran.stdout)
        self.assertEqual(ran.returncode, 0)

    def test_a_program_that_cannot_list_its_tests_is_one_failure(self):
        ran, summary = self.suite({"A.x": "pass"}, others=f"file(WRITE {self.root}/program \"#!/bin/false\\n\")\n")
        self.assertEqual((ran.returncode, summary), (1, ["failed: core.part_1", "0 passed, 1 failed"]))

    def test_a_filter_runs_tests_and_entries_that_it_finds(self):
        tests, others = {"A.x": "pass", "A.y": "fail", "B.x": "pass"}, "add_test(NAME project.xylem COMMAND true)\n"
        for pattern, last in (("^core\\.A\\.x$", "1 passed, 0 failed"), ("x", "3 passed, 0 failed"), ("A", "1 passed, 1 failed")):
            _, summary = self.suite(tests, "--tests-regex", pattern, others=others, parts=2)
            self.assertEqual(summary[-1], last, pattern)

    def test_no_test_is_an_error_where_it_is_not_meant_to_be(self):
        for options, code in ((["--tests-regex", "nowhere"], 1), (["--tests-regex", "nowhere", "--no-tests=ignore"], 0),
                              (["--label-regex", "nowhere"], 1)):
            ran, summary = self.suite({"A.x": "pass"}, *options)
            self.assertEqual((ran.returncode, summary), (code, ["0 passed, 0 failed"]), ran.stdout)

    def test_the_slowest_ten_are_listed(self):
        self.write("tests.jsonl", "".join(json.dumps({"preset": "release", "test": f"core.A.t{i}", "result": "passed", "seconds": i}) + "\n"
                                          for i in range(12)))
        summary = run(sys.executable, ROOT / "scripts/test_suite.py", "summary", self.root / "tests.jsonl").stdout.splitlines()
        self.assertEqual(summary[0], "The slowest 10 of 12 tests:")
        self.assertEqual(summary[1:11], [f"  {i:7.1f} s  core.A.t{i}" for i in range(11, 1, -1)])
        self.assertEqual(summary[11:], ["12 passed, 0 failed"])
        budget = run(sys.executable, ROOT / "scripts/test_suite.py", "budget", self.root / "tests.jsonl").stdout.splitlines()
        self.assertEqual(budget[-1], "| release | core | 12 | 1.1 |")


class Dev(unittest.TestCase):
    def test_usage_errors_exit_with_2_and_say_what_there_is(self):
        for arguments, said in [(["biuld"], "did you mean 'build'?"), (["build", "relase"], "no preset 'relase': there are release"),
                                (["test", "--al"], "test has no option '--al'"), (["setup", "gpu"], "not 'gpu'"),
                                (["bench", "bogus"], "no benchmark 'bogus'"), (["doctor", "x"], "doctor takes no arguments"), (["help", "x"], "help takes no arguments")]:
            result = run(ROOT / "dev", *arguments)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)

    def test_help_names_every_verb(self):
        result = run(ROOT / "dev", "help")
        self.assertEqual(result.returncode, 0)
        for verb in ("setup", "build", "test", "demo", "bench", "format", "lint", "doctor"):
            self.assertIn(f"\n  {verb} ", result.stdout)

    def test_every_verb_has_help_and_does_nothing_else(self):
        text = run(ROOT / "dev", "help").stdout
        for verb in ("setup", "build", "test", "demo", "bench", "gpu", "format", "lint", "doctor", "help"):
            for arguments in (["--help"], ["-h"], ["word", "--help"]):
                result = run(ROOT / "dev", verb, *arguments, timeout=10)
                self.assertEqual((result.returncode, result.stderr), (0, ""), (verb, arguments))
                usage, empty, *own = result.stdout.splitlines()
                self.assertEqual((usage, empty), ("usage: ./dev VERB", ""))
                self.assertRegex(own[0], rf"^  {verb} ")
                self.assertIn("\n".join(own), text)
                self.assertFalse([line for line in own[1:] if line.startswith("  ") and line[2] != " "], "another verb's lines")

    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck")
    def test_shellcheck_finds_nothing(self):
        result = run("shellcheck", ROOT / "dev", ROOT / ".ci/run", ROOT / "scripts/doctor.sh")
        self.assertEqual(result.returncode, 0, result.stdout)


class Setup(Tree):
    """./dev setup with a dpkg-query that knows the packages it is told, and an apt-get that writes down how it was called."""

    def setup_with(self, installed, apt_get="exit 0"):
        for tool in ("bash", "env", "dirname", "realpath", "nproc", "grep", "sed", "cat"):
            (self.root / tool).unlink(missing_ok=True)
            (self.root / tool).symlink_to(shutil.which(tool))
        self.write("dpkg-query", f"""#!/bin/sh\nfor last; do :; done\ncase " {installed} " in
            *" $last "* | *" all "*) echo 'install ok installed' ;; *) exit 1 ;; esac\n""")
        self.write("sudo", '#!/bin/sh\nexec "$@"\n')
        if apt_get:
            self.write("apt-get", f'#!/bin/sh\necho "$@" >> {self.root}/calls\n{apt_get}\n')
        for name in ("dpkg-query", "sudo", "apt-get"):
            if (self.root / name).exists():
                (self.root / name).chmod(0o755)
        result = run(ROOT / "dev", "setup", env={"PATH": str(self.root)})
        calls = self.root / "calls"
        return result, calls.read_text().splitlines() if calls.exists() else []

    def test_nothing_is_asked_of_apt_where_all_is_installed(self):
        result, calls = self.setup_with("all")
        self.assertEqual((result.returncode, calls), (0, []), result.stderr)

    def test_what_is_missing_is_installed_and_lists_are_fetched_only_after_a_failure(self):
        result, calls = self.setup_with("cmake")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(calls), 3, calls)  # the packages, then the data, then what the window needs
        self.assertIn(" libdnnl-dev ", calls[0])
        self.assertNotIn(" cmake ", calls[0])
        self.assertTrue(calls[1].endswith(" dataset-fashion-mnist"))
        self.assertIn(" libimgui-dev ", calls[2])

        (self.root / "calls").unlink()
        result, calls = self.setup_with("cmake", f"case \"$*\" in *update*) : > {self.root}/lists ;; *) [ -e {self.root}/lists ] ;; esac")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(calls[1].endswith(" update"), calls)

    def test_missing_data_stop_nothing_and_missing_packages_do(self):
        result, _ = self.setup_with("cmake", "case \"$*\" in *dataset* | *imgui*) exit 100 ;; esac")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("going on without dataset-fashion-mnist", result.stderr)
        self.assertIn("going on without libimgui-dev", result.stderr)
        result, _ = self.setup_with("cmake", "exit 100")
        self.assertEqual(result.returncode, 4)
        self.assertIn("could not install: g++", result.stderr)

    def test_elsewhere_the_packages_are_named(self):
        result, _ = self.setup_with("", apt_get="")
        self.assertIn("no apt-get", result.stderr)
        self.assertIn("libdnnl-dev", result.stderr)
        self.assertEqual(result.returncode, 1)  # doctor's: things are missing


class DeviceCode(Tree):
    """What stands for nvcc leaves PTX and C, as nvcc does with --keep."""

    KERNEL = "__global__ static void kernel(\nconst struct K __val_param(k)){__copy_param(k);\n{\nhelper((&k));\n}}\n"

    def check(self, *lines, source=KERNEL, options=(), version=1):
        ptx = "\n".join([".visible .entry kernel(", "\t.param .u64 kernel_param_0", ")", "{", *lines, "}"])
        nvcc = self.write("nvcc", f"""#!/bin/sh
for last; do :; done
case "$*" in
  --version) echo {version} ;;
  *-E*) cat "$last"; while [ "$1" != -o ]; do shift; done; cat "$last" >"$2" ;;
  *) echo "$*" >>{self.root}/calls; cat >"$last/a.ptx" <<'END'
{ptx}
END
cat >"$last/a.cudafe1.gpu" <<'END'
{source}
END
esac
""")
        nvcc.chmod(0o755)
        return run(sys.executable, ROOT / "scripts/check_device_code.py", *options, self.root / "kept", nvcc, "-c", self.root / "a.cu",
                   env={**os.environ, "CCACHE_DIR": str(self.root / "cache")})

    def test_what_a_gpu_can_run_passes(self):
        result = self.check("\tmov.u64 \t%rd1, 0;", "\tld.param.u64 \t%rd2, [kernel_param_0];", "\tld.global.u32 \t%r1, [%rd2+8];",
                            "\tmov.b64 \t%rd3, 0;", "\tadd.s64 \t%rd3, %rd2, 16;", "\tst.global.u32 \t[%rd3], %r1;")
        self.assertEqual((result.returncode, result.stdout), (0, "a.ptx: 0 faults\na.cudafe1.gpu: 0 faults\n"))

    def test_traps_and_places_near_null_are_told(self):
        for line in ("\ttrap;", "\t@%p1 trap;", "\tld.u8 \t%rs1, [30];", "\tmov.u64 \t%rd1, 16;\n\tld.u32 \t%r1, [%rd1+4];",
                     "\tmov.b64 \t%rd1, 0;\n\tst.u32 \t[%rd1], %r1;"):
            result = self.check(line)
            self.assertEqual((result.returncode, result.stdout), (1, "a.ptx: 1 faults\na.cudafe1.gpu: 0 faults\n"), line)
            self.assertIn(f"a.ptx: kernel: {line.split(chr(10))[-1].strip()}", result.stderr)

    def test_one_function_is_there_to_trap(self):
        meant = "\tret;\n}\n.func not_for_this_gpu()\n{\n\ttrap;"
        self.assertEqual(self.check(meant).returncode, 0)
        self.assertEqual(self.check(meant.replace("not_for_this_gpu", "another")).returncode, 1)

    def test_what_only_the_host_has_is_told_where_kernels_reach_it(self):
        for used in ("return (_ZN8ulpscope5tableE)[i];", "return f((&_ZN8ulpscope8binary32E));", "return (clzl(x)) - 0;"):
            helper = "static __inline__ int helper( unsigned long x){\n{\n" + used + "\n}}\n"
            self.assertEqual(self.check(source=self.KERNEL + helper).returncode, 1, used)
            self.assertEqual(self.check(source=self.KERNEL + helper.replace("helper", "of_the_host")).returncode, 0, used)

    def test_nothing_to_check_is_no_success(self):
        nvcc = self.write("nvcc", "#!/bin/sh\n")
        nvcc.chmod(0o755)
        result = run(sys.executable, ROOT / "scripts/check_device_code.py", self.root / "kept", nvcc, "-c", "a.cu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no *.ptx with kernels", result.stderr)

    def test_a_compiler_that_fails_is_a_failure(self):
        result = run(sys.executable, ROOT / "scripts/check_device_code.py", self.root / "kept", "false", "-c", "a.cu")
        self.assertEqual((result.returncode, result.stdout), (1, ""))

    @unittest.skipUnless(shutil.which("ccache"), "no ccache")
    def test_ccache_keeps_what_was_made_until_something_changes(self):
        def calls():
            return (self.root / "calls").read_text().splitlines()

        source = self.write("a.cu", "first\n")
        changes = [lambda: None, lambda: source.write_text("second\n"), lambda: options.append("--device-only"), lambda: None]
        options, expected = ["--ccache", "ccache"], 0
        for change, version in zip(changes, (1, 1, 1, 2)):
            change()
            expected += 1
            for _ in range(2):
                result = self.check(options=options, version=version)
                self.assertEqual((result.returncode, result.stdout), (0, "a.ptx: 0 faults\na.cudafe1.gpu: 0 faults\n"), result.stderr)
                self.assertEqual(len(calls()), expected)
        self.assertIn(" -c", f" {calls()[0]}")
        self.assertIn("-cubin", calls()[-1])


if __name__ == "__main__":
    unittest.main()
