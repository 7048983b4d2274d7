"""The wheel that ./dev package wheel made is installed into a bare environment, and records, reports and trains there.

usage: wheel_test.py PROGRAM PYTHON

PROGRAM is that of the build, PYTHON one that may have torch. Without a wheel it is skipped, and what needs torch where PYTHON has none.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGES = ROOT / "build/package"
TOOLS = PACKAGES / "tools/bin"
SCRATCH = PACKAGES / "tried/wheel"
GLIBC = "2.28"
PLATFORM = "manylinux_2_28_x86_64"
LARGEST = 20_000_000
TRACE = ROOT / "examples/traces/nan_at_step_9.h5"
VERDICT = "BROKEN: The loss was NaN or Inf in 11 of 20 steps"

TRAINS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.zeros(16, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

# A user's program with the package, which a checker of types has to understand.
TYPED = """
import ulpscope


def verdict(path: str) -> str:
    report: ulpscope.Report = ulpscope.report(path)
    losses: list[object] = [row["loss"] for row in ulpscope.load(path).table("steps")]
    return f"{report.verdict} {len(losses)} {ulpscope.findings(path)[0]['code']} {report.text}"


def train(model: object) -> None:
    with ulpscope.record("run.h5", model) as run:
        run.metric("accuracy", 1.0)
        run.close()
"""

sys.path.insert(0, str(ROOT / "packaging"))
import elf  # noqa: E402


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        made = run(PYTHON, "-m", "venv", SCRATCH / "venv")
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)
        cls.python = SCRATCH / "venv/bin/python"
        installed = run(cls.python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", WHEEL)
        if installed.returncode != 0:
            raise AssertionError(installed.stdout + installed.stderr)
        cls.site = next((SCRATCH / "venv/lib").glob("python*/site-packages"))

    def python_run(self, *arguments, folder=SCRATCH):
        """In the bare environment, which nothing leads out of."""
        return run(self.python, *arguments, cwd=folder, env={"PATH": "/usr/bin:/bin"})

    def test_name_and_size(self):
        version = re.search(r"project\(ulpscope VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(WHEEL.name, f"ulpscope-{version}-py3-none-{PLATFORM}.whl")
        print(f"{WHEEL.name}: {WHEEL.stat().st_size / 1e6:.1f} MB")
        self.assertLessEqual(WHEEL.stat().st_size, LARGEST)
        shown = self.python_run("-c", "from importlib.metadata import version, requires; print(version('ulpscope'), requires('ulpscope'))")
        self.assertRegex(shown.stdout, rf"^{re.escape(version)} \[[^\]]*\]\n$")
        for requirement in re.findall(r"'([^']*)'", shown.stdout):
            self.assertIn("extra ==", requirement)

    def test_auditwheel_finds_it_portable(self):
        shown = run(TOOLS / "auditwheel", "show", WHEEL)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(f'consistent with the following platform tag: "{PLATFORM}"', " ".join(shown.stdout.split()))

    def test_files_need_no_newer_glibc_and_the_library_shows_its_functions_alone(self):
        package = self.site / "ulpscope"
        files = [package / "bin/ulpscope", package / "libulpscope.so", *sorted((package / "lib/ulpscope").iterdir())]
        self.assertEqual(len(files), 4)
        for file in (*files, *(package / "torch/prebuilt").glob("*.so")):
            self.assertLessEqual(elf.Elf(file).newest_glibc(), elf.version_number(GLIBC), file)
        shown = run("nm", "--dynamic", "--defined-only", "--extern-only", package / "libulpscope.so")
        names = [line.split()[-1] for line in shown.stdout.splitlines()]
        self.assertIn("ulpscope_open", names)
        self.assertEqual([name for name in names if not name.startswith("ulpscope_")], [])

    def test_contents_are_said(self):
        with zipfile.ZipFile(WHEEL) as archive:
            names = archive.namelist()
            said = json.loads(archive.read(next(name for name in names if name.endswith(".dist-info/sboms/ulpscope.spdx.json"))))
            for file in said["files"]:
                sums = {entry["algorithm"]: entry["checksumValue"] for entry in file["checksums"]}
                self.assertEqual(sums["SHA256"], hashlib.sha256(archive.read(file["fileName"].removeprefix("./"))).hexdigest())
        self.assertEqual({file["fileName"] for file in said["files"]},
                         {"./ulpscope/bin/ulpscope", "./ulpscope/libulpscope.so", "./ulpscope/lib/ulpscope/libdnnl.so.2",
                          "./ulpscope/lib/ulpscope/libcsv.so.3"})
        for package in said["packages"]:
            if package["name"] != "ulpscope":
                self.assertTrue([name for name in names if name.endswith(f"/licenses/libraries/{package['name']}.txt")], package["name"])
        self.assertTrue([name for name in names if name.endswith(".dist-info/licenses/LICENSE")])

    def test_it_reports_and_shows_the_demo_without_torch(self):
        done = self.python_run("-m", "ulpscope", "demo", "--output", "demo", "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("BROKEN: ", done.stdout)
        done = self.python_run("-c", f"import ulpscope; print(ulpscope.report({str(TRACE)!r}))")
        self.assertTrue(done.stdout.startswith(VERDICT), done.stderr)
        done = run(SCRATCH / "venv/bin/ulpscope", "report", TRACE, env={"PATH": "/usr/bin:/bin"})
        self.assertTrue(done.stdout.startswith(VERDICT), done.stderr)
        self.assertEqual(done.stdout, run(PROGRAM, "report", TRACE).stdout)

    def test_it_records(self):
        if run(PYTHON, "-c", "import torch").returncode != 0:
            self.skipTest(f"{PYTHON} cannot import torch")
        # The environment stays bare but for what PYTHON has.
        folders = run(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout
        (self.site / "torch.pth").write_text(folders)
        self.addCleanup((self.site / "torch.pth").unlink)
        (SCRATCH / "train.py").write_text(TRAINS)
        for module_before in ("", "h5py", "torch"):  # each has an HDF5 or a libstdc++ of its own
            with self.subTest(module_before=module_before):
                script = SCRATCH / "train.py"
                script.write_text(f"import {module_before}\n{TRAINS}" if module_before else TRAINS)
                done = self.python_run("-m", "ulpscope", "record", "--overwrite", "train.py")
                if module_before == "h5py" and "No module named 'h5py'" in done.stderr:
                    continue
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
                report = self.python_run("-m", "ulpscope", "report", "run.h5")
                self.assertEqual(report.returncode, 0, report.stderr)
                self.assertIn("3 steps", report.stdout)
        for file in (self.site / "ulpscope/torch/prebuilt").glob("*.so"):  # for the PyTorch of the tests no compiler is needed
            done = run(self.python, "-m", "ulpscope", "record", "--overwrite", "train.py", cwd=SCRATCH, env={"PATH": "/", "XDG_CACHE_HOME": "/proc"})
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertEqual(done.stderr.splitlines()[0], "ulpscope: recording through prebuilt callbacks in C++", file)
        refused = self.python_run("-c", "import ulpscope, torch\nwith ulpscope.record('run.h5', torch.nn.Linear(2, 2)): pass")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"\nFileExistsError: [^\n]*run\.h5 exists; overwrite=True replaces it\n$")

    def test_a_checker_of_types_understands_it(self):
        (SCRATCH / "typed.py").write_text(TYPED)
        checked = run(TOOLS / "mypy", "--strict", "--python-executable", self.python, "--cache-dir", os.devnull, "typed.py", cwd=SCRATCH)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        if run(PYTHON, "-c", "import torch").returncode != 0:
            self.skipTest(f"{PYTHON} cannot import torch, which the public functions are declared with")
        public = [ROOT / "python/ulpscope" / name for name in ("__init__.py", "__main__.py", "_report.py", "opcheck.py")]
        checked = run(TOOLS / "mypy", "--strict", "--python-executable", PYTHON, "--follow-imports=silent", "--cache-dir", os.devnull, *public,
                      cwd=ROOT)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    PROGRAM, PYTHON = (pathlib.Path(argument) for argument in sys.argv[1:3])
    del sys.argv[1:3]
    wheels = sorted(PACKAGES.glob("*.whl"))
    if len(wheels) != 1:
        print("skipped: there is no wheel in build/package; ./dev package wheel makes it")
        sys.exit(77)
    WHEEL = wheels[0]
    unittest.main()
