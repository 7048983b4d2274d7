"""The packages that ./dev package made run in a bare folder and in an older Debian that has neither a compiler nor X11.

usage: packages_test.py PROGRAM

PROGRAM is that of the build, whose numbers those of the packages have to have. Without packages, root or debootstrap it is skipped.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGES = ROOT / "build/package"
SCRATCH = PACKAGES / "tried"
GLIBC = "2.28"
# Of a program that is linked with glibc alone, and the two libraries that lie beside it.
LIBRARIES = {"linux-vdso.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "libdnnl.so.2",
             "libcsv.so.3"}
TRAINING = ["train", "mlp", "--precision", "fp16", "--steps", "20", "--force", "--json"]

# Into another root, which has /proc for as long as the command runs: the program finds what lies beside it there.
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'

sys.path.insert(0, str(ROOT / "packaging"))
import elf  # noqa: E402
import parts  # noqa: E402


def skip(text):
    print(f"skipped: {text}")
    sys.exit(77)


def only(pattern):
    found = sorted(PACKAGES.glob(pattern))
    return found[0] if len(found) == 1 else None


def command_output(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def unpack(archive, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(archive) as files:
        files.extractall(folder)
    return next(folder.iterdir())


def table(trace, name):
    """The rows of a table of a trace, as the build's program writes them."""
    exported = command_output(BUILT, "export", trace, "--table", name)
    if exported.returncode != 0:
        raise AssertionError(exported.stderr)
    return list(csv.DictReader(exported.stdout.splitlines()))


class Place:
    """Where a program is tried: this system or, with a root, another one. Nothing of the environment comes along."""

    def __init__(self, folder, program, root=None):
        self.folder, self.program, self.root = folder, program, root

    def run(self, *arguments):
        inside = ["unshare", "--mount", "sh", "-c", ENTER, self.root] if self.root else []
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} if self.root else {}
        return command_output(*inside, *arguments, env=environment, cwd=self.folder)

    def ulpscope(self, *arguments):
        return self.run(self.program, *arguments)


class Packages(unittest.TestCase):
    def check_program(self, place, trace, seen_as):
        """Trains, reports and explains; `trace` is the file here, `seen_as` there. What training printed."""
        version = place.ulpscope("--version")
        self.assertEqual(version.returncode, 0, version.stderr)
        self.assertRegex(version.stdout, r"^ulpscope \d")
        trained = place.ulpscope(*TRAINING, "-o", seen_as)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertTrue(trace.exists())
        reported = place.ulpscope("report", seen_as)
        self.assertEqual(reported.returncode, 0, reported.stderr)
        self.assertIn("FP16, 20 steps", reported.stdout)
        explained = place.ulpscope("float", "0.1", "--format", "fp16")
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertIn("0.0999755859375", explained.stdout)
        linked = place.run("/usr/bin/ldd", place.program)
        names = {line.split()[0].rsplit("/", 1)[-1] for line in linked.stdout.splitlines()}
        self.assertNotIn("not found", linked.stdout)
        self.assertIn("libdnnl.so.2", names)
        self.assertLessEqual(names, LIBRARIES)
        return trained.stdout

    def check_numbers(self, trace, printed):
        """The run computed what the build's program computes: all losses, all tensors of all steps, and the weights."""
        own = SCRATCH / "build.h5"
        trained = command_output(BUILT, *TRAINING, "-o", own)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        fingerprints = [re.search(r'"weights_fingerprint": "(\w+)"', text)[1] for text in (printed, trained.stdout)]
        self.assertEqual(fingerprints[0], fingerprints[1])
        self.assertEqual([row["loss"] for row in table(trace, "steps")], [row["loss"] for row in table(own, "steps")])
        tensors = table(trace, "stats")
        self.assertGreater(len(tensors), 1000)
        self.assertEqual(tensors, table(own, "stats"))

    def test_archive_runs_in_a_bare_folder(self):
        tree = unpack(only("*.tar.gz"), SCRATCH / "bare")
        place = Place(SCRATCH / "bare", tree / "bin/ulpscope")
        printed = self.check_program(place, SCRATCH / "bare/run.h5", "run.h5")
        self.check_numbers(SCRATCH / "bare/run.h5", printed)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            place.ulpscope("--version")
            times.append(time.perf_counter() - start)
        print(f"{only('*.tar.gz').name}: {only('*.tar.gz').stat().st_size / 1e6:.1f} MB, starts in {sorted(times)[10] * 1e3:.0f} ms")

    def test_it_needs_no_newer_glibc_than_it_says(self):
        tree = unpack(only("*.tar.gz"), SCRATCH / "needs")
        files = [tree / "bin/ulpscope", *sorted((tree / "lib/ulpscope").iterdir())]
        self.assertEqual(len(files), 3)
        for file in files:
            self.assertLessEqual(elf.Elf(file).newest_glibc(), elf.version_number(GLIBC), file)
        control = command_output("dpkg-deb", "--field", only("*.deb"), "Depends").stdout
        self.assertEqual(control.strip(), f"libc6 (>= {GLIBC})")

    def test_contents_are_said(self):
        tree = unpack(only("*.tar.gz"), SCRATCH / "contents")
        documents = tree / "share/doc/ulpscope"
        said = json.loads((documents / "ulpscope.spdx.json").read_text())
        self.assertEqual(said["spdxVersion"], "SPDX-2.3")
        packages = {package["SPDXID"]: package for package in said["packages"]}
        files = {file["SPDXID"]: file for file in said["files"]}
        known = {"SPDXRef-DOCUMENT", *packages, *files}
        how = {}
        for relation in said["relationships"]:
            self.assertLessEqual({relation["spdxElementId"], relation["relatedSpdxElement"]}, known)
            how[relation["relatedSpdxElement"]] = relation["relationshipType"]
        self.assertEqual(set(how), known - {"SPDXRef-DOCUMENT"})
        names = {package["name"]: how[identity] for identity, package in packages.items()}
        for name, wanted in (("hdf5", "STATIC_LINK"), ("fmtlib", "STATIC_LINK"), ("highway", "STATIC_LINK"), ("gcc-12", "STATIC_LINK"),
                             ("zlib", "STATIC_LINK"), ("glfw3", "STATIC_LINK"), ("onednn", "DYNAMIC_LINK"), ("libcsv", "DYNAMIC_LINK"),
                             ("cli11", "CONTAINS"), ("nlohmann-json3", "CONTAINS")):
            self.assertEqual(names.get(name), wanted, name)
        for package in packages.values():
            self.assertTrue(package["versionInfo"] and package["licenseDeclared"])
            if package["name"] != "ulpscope":
                self.assertTrue((documents / "licences" / f"{package['name']}.txt").stat().st_size > 0)
        for file in files.values():
            sums = {entry["algorithm"]: entry["checksumValue"] for entry in file["checksums"]}
            self.assertEqual(sums["SHA256"], command_output("sha256sum", tree / file["fileName"]).stdout.split()[0])
        for path in ("share/man/man1/ulpscope.1", "share/bash-completion/completions/ulpscope", "share/doc/ulpscope/LICENSE",
                     "share/ulpscope/experiments/mlp.toml"):
            self.assertTrue((tree / path).exists(), path)

    def test_both_run_in_an_older_debian(self):
        root = older_debian()
        tree = unpack(only("*.tar.gz"), root / "tried")
        program = pathlib.Path("/", tree.relative_to(root), "bin/ulpscope")
        place = Place("/", program, root)
        self.assertNotEqual(place.run("/bin/sh", "-c", "command -v cc gcc g++").returncode, 0)
        self.check_program(place, root / "tried/run.h5", "/tried/run.h5")
        view = place.ulpscope("view", "/tried/run.h5")
        self.assertEqual(view.returncode, 4)
        self.assertRegex(view.stderr, r"^ulpscope: no display: [^\n]*\n$")

        shutil.copy(only("*.deb"), root / "tried/ulpscope.deb")
        installed = place.run("dpkg", "--install", "/tried/ulpscope.deb")
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.check_program(Place("/", "/usr/bin/ulpscope", root), root / "tried/deb.h5", "/tried/deb.h5")
        removed = place.run("dpkg", "--purge", "ulpscope")
        self.assertEqual(removed.returncode, 0, removed.stderr)
        self.assertFalse((root / "usr/bin/ulpscope").exists())


def older_debian():
    """The root of a minimal Debian of the suite whose glibc packages are linked against."""
    root = SCRATCH / parts.OLDER_SUITE
    done = SCRATCH / f"{parts.OLDER_SUITE}.done"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        uri, keys = parts.mirror()
        made = command_output("debootstrap", "--variant=minbase", f"--keyring={keys}", parts.OLDER_SUITE, root, uri)
        if made.returncode != 0:
            raise AssertionError(f"debootstrap exits with {made.returncode}:\n{made.stdout[-2000:]}{made.stderr}")
        done.touch()
    return root


if __name__ == "__main__":
    BUILT = pathlib.Path(sys.argv.pop(1))
    if not only("*.tar.gz") or not only("*.deb"):
        skip("there are no packages in build/package; ./dev package makes them")
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        skip("a chroot needs root and debootstrap")
    SCRATCH.mkdir(exist_ok=True)
    unittest.main()
