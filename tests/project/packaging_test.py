"""What a program needs is read from its file, and one that is lowered needs no more and computes the same."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# A library that asks glibc for functions of several versions, one library for a function with a version, and another for one that
# nothing calls.
LIBRARY = """
double pow(double, double);
int abs(int);
extern int from_program(int), never_called(void);
double asked(double x) { return pow(x, 3) + abs(from_program(1)); }
int not_asked(void) { return never_called(); }
"""
PROGRAM = """
#include <stdio.h>
extern double asked(double);
int renamed(int x) { return 10 * x; }
int main(void) { printf("%g\\n", asked(2)); }
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Elf(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ulpscope_elf_")
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def compile(self, name, text, *options):
        source = self.folder / f"{name}.c"
        source.write_text(text)
        done = run("cc", "-O1", source, "-o", self.folder / name, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def shared(self, name, text, *options):
        return self.compile(name, text, "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{name}", *options)

    def versioned(self, name, text, version):
        script = self.folder / f"{name}.map"
        script.write_text(f"{version} {{ global: *; }};\n")
        return self.shared(name, text, f"-Wl,--version-script={script}")

    def elf(self, *arguments):
        return run(sys.executable, ROOT / "packaging/elf.py", *arguments)

    def library(self):
        other = self.versioned("libother.so.1", "int from_program(int x) { return -x; }\n", "OTHER_1")
        unused = self.versioned("libunused.so.1", "int never_called(void) { return 0; }\n", "UNUSED_1")
        library = self.shared("libasked.so.1", LIBRARY, other, unused, "-lm")
        other.unlink()
        unused.unlink()
        return library

    def lower(self, library, output, *options):
        return self.elf("lower", "--glibc", "2.28", "--sysroot", "/", *options, library, output)

    def test_needs_are_read(self):
        library = self.library()
        needs = self.elf("needs", library)
        self.assertEqual(needs.returncode, 0, needs.stderr)
        self.assertRegex(needs.stdout, r"libasked\.so\.1: glibc 2\.\d+; libother\.so\.1 libunused\.so\.1 libm\.so\.6 libc\.so\.6\n$")

    def test_a_newer_glibc_is_refused_by_the_name_of_what_needs_it(self):
        library = self.library()
        checked = self.elf("check", "--glibc", "2.28", library)
        self.assertEqual(checked.returncode, 1)
        self.assertIn("needs glibc 2.29, newer than 2.28: pow@GLIBC_2.29", checked.stdout)
        self.assertEqual(self.elf("check", "--glibc", "2.29", library).returncode, 0)

    def test_what_is_lowered_runs_without_what_it_asked_for(self):
        library = self.library()
        lowered = self.folder / "lowered/libasked.so.1"
        lowered.parent.mkdir()
        done = self.lower(library, lowered, "--provided", "libother.so.1", "--provides", "from_program=renamed",
                          "--unused", "libunused.so.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.elf("check", "--glibc", "2.28", lowered).returncode, 0)
        self.assertTrue(self.elf("needs", lowered).stdout.endswith("; libm.so.6 libc.so.6\n"))
        program = self.compile("program", PROGRAM, lowered, "-Wl,-rpath,$ORIGIN/lowered")
        # With all symbols looked for at the start, among them that of the library that is nowhere.
        ran = run(program, env={"LD_BIND_NOW": "1"})
        self.assertEqual((ran.returncode, ran.stdout), (0, "18\n"), ran.stderr)

    def test_others_read_what_was_lowered(self):
        lowered = self.folder / "lowered.so"
        self.lower(self.library(), lowered, "--provided", "libother.so.1", "--unused", "libunused.so.1")
        read = run("readelf", "--version-info", "--dynamic", "--wide", lowered)
        self.assertEqual((read.returncode, read.stderr), (0, ""))
        self.assertNotRegex(read.stdout, r"GLIBC_2\.29|OTHER_1|UNUSED_1|libother|libunused")
        self.assertEqual(set(re.findall(r"File: (\S+)", read.stdout)), {"libm.so.6", "libc.so.6"})

    def test_a_function_that_the_older_glibc_lacks_is_refused(self):
        library = self.shared("libnew.so.1", "unsigned arc4random(void);\nunsigned asked(void) { return arc4random(); }\n")
        done = self.lower(library, self.folder / "out.so")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^elf\.py: .*: an older glibc lacks arc4random@GLIBC_2\.36\n$")
        self.assertFalse((self.folder / "out.so").exists())

    def test_files_that_are_none_are_refused_in_a_line(self):
        text = self.folder / "text"
        text.write_text("no program")
        for file, said in ((text, "no 64-bit little-endian ELF file"), (self.folder / "absent", "No such file or directory")):
            done = self.elf("needs", file)
            self.assertEqual((done.returncode, done.stderr), (1, f"elf.py: {file}: {said}\n"))


if __name__ == "__main__":
    unittest.main()
