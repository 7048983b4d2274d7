"""The callbacks in C++ are compiled once, also where several processes need them at once, or one was killed while it compiled them, and
not at all where the package has them."""

import contextlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from recorded import NEEDS_TORCH, torch

from ulpscope._library import find_library

if torch is not None:
    from ulpscope.torch import choice, fast

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(fast.__file__)))) if torch is not None else ""

LOADS = """
from ulpscope.torch.fast import Fast
Fast().close()
print("loaded")
"""

# Stands for a compiler: it says that it began, goes on when it is told to, and says that it ended.
COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo began > {folder}/said
read told < {folder}/told
cp {library} "$2"
echo ended > {folder}/said
"""


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(torch is not None and not fast._compiler(), "needs a C++ compiler")
class Compiling(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.compiler = os.path.join(self.folder, "compiler")
        with open(self.compiler, "w", encoding="utf-8") as file:
            file.write(COMPILER.format(folder=self.folder, library=fast.find()))
        os.chmod(self.compiler, stat.S_IRWXU)
        self.said, self.told = (os.path.join(self.folder, name) for name in ("said", "told"))
        for path in (self.said, self.told):
            os.mkfifo(path)
        self.cache = os.path.join(self.folder, "cache", "ulpscope")
        self.scratch = os.path.join(self.folder, "scratch")
        os.mkdir(self.scratch)

    def start(self, code=LOADS):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "PYTHONPATH": PACKAGE, "CXX": self.compiler, "TMPDIR": self.scratch,
                                        "XDG_CACHE_HOME": os.path.dirname(self.cache)},
                                   start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(self.kill_all, process)
        return process

    @staticmethod
    def kill_all(process):
        """Kills a process, and a compiler of it that goes on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def hear(self):
        with open(self.said, encoding="utf-8") as file:
            return file.read()

    def tell(self):
        with open(self.told, "w", encoding="utf-8") as file:
            file.write("go on\n")

    def assert_cached(self):
        """The library and its lock are in the cache, and nothing else."""
        names = sorted(os.listdir(self.cache))
        self.assertEqual(names, [names[0], names[0] + ".lock"])
        self.assertRegex(names[0], r"^libulpscope_torch_[0-9.]+_[0-9a-f]{16}\.so$")

    def test_of_two_processes_one_compiles_and_the_other_waits(self):
        first = self.start()
        self.assertEqual(self.hear(), "began\n")
        second = self.start()
        self.assertRegex(second.stderr.readline(), "^ulpscope: waiting for another process, which compiles callbacks for torch ")
        self.tell()
        self.assertEqual(self.hear(), "ended\n")
        for process, said in ((first, "compiling callbacks for torch"), (second, "")):
            out, err = process.communicate()
            self.assertEqual((process.returncode, out), (0, "loaded\n"), err)
            self.assertIn(said, err)
        self.assert_cached()

    def test_a_process_that_is_killed_leaves_nothing_in_the_cache(self):
        first = self.start()
        self.assertEqual(self.hear(), "began\n")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        self.tell()  # the compiler goes on
        self.assertEqual(self.hear(), "ended\n")
        second = self.start()
        self.assertEqual(self.hear(), "began\n")
        self.tell()
        self.assertEqual(self.hear(), "ended\n")
        out, err = second.communicate()
        self.assertEqual((second.returncode, out), (0, "loaded\n"), err)
        self.assert_cached()

    def test_a_file_system_without_locks(self):
        code = f"import fcntl, errno\ndef no(*_): raise OSError(errno.ENOLCK, 'none')\nfcntl.flock = no\n{LOADS}"
        process = self.start(code)
        self.assertEqual(self.hear(), "began\n")
        self.tell()
        self.assertEqual(self.hear(), "ended\n")
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (0, "loaded\n"), err)
        self.assert_cached()

    def test_what_keeps_it_from_being_compiled_is_said(self):
        shutil.rmtree(self.scratch)
        os.unlink(self.compiler)
        process = self.start("import os\nfrom ulpscope.torch import fast\ntry: fast.find()\nexcept fast.Unavailable as error: print(error)")
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(out, r"^it could not be compiled: [^\n]*No such file or directory: [^\n]*compiler'\n$")


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(torch is not None and not fast._compiler(), "needs a C++ compiler")
class Prebuilt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.library = fast.find()
        for name, value in (("_PREBUILT", folder.name), ("find", self.find)):
            patched = mock.patch.object(fast, name, value)
            patched.start()
            self.addCleanup(patched.stop)
        self.path = fast._prebuilt(folder.name)
        self.found = []

    def find(self):
        self.found.append(self.library)
        return self.library

    def name(self):
        adapter = fast.Fast()
        adapter.close()
        return adapter.name

    def test_those_for_the_exact_torch_are_taken(self):
        self.assertIn(f"callbacks-{torch.__version__}-cxx11abi", self.path)
        shutil.copy(self.library, self.path)
        self.assertEqual((self.name(), self.found), ("prebuilt callbacks in C++", []))
        with mock.patch.object(choice, "_told", False), mock.patch("sys.stderr", io.StringIO()) as said:
            adapter, sentence = choice.choose("callbacks")
        adapter.close()
        self.assertEqual(said.getvalue(), "ulpscope: recording through prebuilt callbacks in C++\n")
        self.assertEqual(sentence, "Ops of PyTorch were seen by prebuilt callbacks in C++.")

    def test_others_are_left(self):
        def damaged():
            with open(self.path, "wb") as file:
                file.write(b"\x7fELF")

        def of_another_torch():
            shutil.copy(self.library, self.path.replace(torch.__version__, torch.__version__ + "0"))

        def of_another_kind():
            shutil.copy(find_library(), self.path)

        for make in (damaged, of_another_torch, of_another_kind):
            with self.subTest(make.__name__):
                make()
                self.assertEqual((self.name(), self.found), ("callbacks in C++", [self.library]))
                self.found.clear()
                shutil.rmtree(os.path.dirname(self.path))
                os.mkdir(os.path.dirname(self.path))

    def test_of_another_version_of_the_package(self):
        shutil.copy(self.library, self.path)
        with mock.patch.object(fast, "INTERFACE", fast.INTERFACE + 1), self.assertRaises(fast.Unavailable):
            fast.Fast()
        self.assertEqual(self.found, [self.library])

    def test_a_package_gets_them_by_prebuild(self):
        def compiled(compiler, output):
            shutil.copy(self.library, output)

        with mock.patch.object(fast, "_compile", compiled):
            fast.prebuild(os.path.dirname(self.path))
        self.assertEqual((self.name(), self.found), ("prebuilt callbacks in C++", []))


if __name__ == "__main__":
    unittest.main()
