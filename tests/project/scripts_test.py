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
            ("analyzers/ranges.cpp", '"ulpscope/trace/snapshot.h"'), ("analyzers/export.cpp", '"ulpscope/trace/columns.h"'),
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
            ("core/run/trainer.cpp", '"ulpscope/analyzers/ranges.h"', "core may not include analyzers"),
            ("core/run/trainer.cpp", '"ulpscope/kernels/cpu/matmul.h"', "kernels' own"),
            ("studies/trial.cpp", '"ulpscope/kernels/device/block.h"', "kernels' own"),
            ("core/tensor/tensor.h", '"ulpscope/core/engine/dispatch.h"', "core/tensor may not include core/engine"),
            ("core/settings/option.h", '"ulpscope/core/tensor/tensor.h"', "core/settings may not include core/tensor"),
            ("core/nn/module.h", '"ulpscope/core/optim/adam.h"', "core/nn may not include core/optim"),
            ("analyzers/ranges.cpp", '"ulpscope/core/run/trainer.h"', "analyzers may not include core"),
            ("analyzers/ranges.cpp", '"ulpscope/trace/sink.h"', "analyzers may not include trace/sink"),
            ("analyzers/ranges.cpp", '"ulpscope/trace/trace_file.h"', "analyzers may not include trace"),
            ("analyzers/ranges.cpp", '"ulpscope/analyzers/findings/scale_text.h"', "findings' own: use analyzers/findings/all.h"),
            ("cli/main.cpp", "<hdf5.h>", "may not include hdf5"),
            ("cli/main.cpp", '"tests/support/files.h"', "not a path that starts with ulpscope/"),
            ("cli/main.cpp", "<unheard_of/library.h>", "belongs to no library"),
            ("new_folder/file.cpp", '"ulpscope/base/text.h"', "new_folder is a folder that the table"),
        ]:
            result = self.check(path, include)
            self.assertEqual(result.returncode, 1, f"{path} {include} was let through")
            self.assertIn(said, result.stdout)

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
        result = self.check("--build", self.root / "build")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertTrue((self.root / "build/headers_alone/base/alone.cpp").exists())
        self.assertFalse((self.root / "build/headers_alone/base/first.cpp").exists())
        self.write("base/alone.h", "namespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        result = self.check("--build", self.root / "build")
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
        result = self.check("--build", self.root / "build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ulpscope/base/first.h does not compile alone", result.stdout)
        self.write("base/first.h", "#include <vector>\nnamespace ulpscope {\ninline std::vector<int> numbers;\n}\n")
        result = self.check("--build", self.root / "build")
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


class Dev(unittest.TestCase):
    def test_usage_errors_exit_with_2_and_say_what_there_is(self):
        for arguments, said in [(["biuld"], "did you mean 'build'?"), (["build", "relase"], "no preset 'relase': there are release"),
                                (["test", "--al"], "test has no option '--al'"), (["setup", "gpu"], "not 'gpu'"),
                                (["doctor", "x"], "doctor takes no arguments"), (["help", "x"], "help takes no arguments")]:
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
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, text, ""), (verb, arguments))

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
