#!/usr/bin/env python3
"""Gets what a package is linked with and Debian has no static library of, and an older glibc to link against.

usage: parts.py FOLDER

FOLDER/sysroot   libc6 and libc6-dev of an older Debian, unpacked
FOLDER/lib       static libraries, built from sources of Debian
FOLDER/parts.json   their versions, and the SHA-256 of those sources

The mirrors are those that apt-get of this machine uses, and it checks the signatures. What is there and of the same versions stays.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

# The older Debian: its glibc 2.31 is the oldest that current mirrors have.
OLDER_SUITE = "bullseye"
# GLFW loads the libraries of X11 when a window opens only from 3.4 on. The program is to start where there are none.
NEWER_SUITE = "trixie"

# Unused functions of a library in C are left out, and its code is compiled small, since most of a package's bytes are code. No exception
# passes through it: ours that HDF5 calls have none but for want of memory.
SMALL_C = ["-DCMAKE_C_FLAGS=-ffunction-sections -fdata-sections -fvisibility=hidden -fno-asynchronous-unwind-tables",
           "-DCMAKE_C_FLAGS_RELEASE=-Os -DNDEBUG"]
# Source package -> (Debian package whose headers the program is compiled with, which says the version; options of CMake; target).
# HDF5 is built because Debian's static one cannot be part of a shared library.
SOURCES = {
    "fmtlib": ("libfmt-dev", ["-DFMT_TEST=OFF", "-DFMT_DOC=OFF"], "fmt"),
    "hdf5": ("libhdf5-dev", ["-DHDF5_ENABLE_THREADSAFE=ON", "-DHDF5_ENABLE_Z_LIB_SUPPORT=ON", "-DHDF5_ENABLE_SZIP_SUPPORT=OFF",
                             "-DHDF5_BUILD_HL_LIB=OFF", "-DHDF5_BUILD_CPP_LIB=OFF", "-DHDF5_BUILD_TOOLS=OFF",
                             "-DHDF5_BUILD_EXAMPLES=OFF", "-DBUILD_TESTING=OFF", *SMALL_C], "hdf5-static"),
    "highway": ("libhwy-dev", ["-DHWY_ENABLE_TESTS=OFF", "-DHWY_ENABLE_EXAMPLES=OFF", "-DHWY_ENABLE_CONTRIB=OFF"], "hwy"),
    "glfw3": (None, ["-DGLFW_BUILD_WAYLAND=OFF", "-DGLFW_BUILD_EXAMPLES=OFF", "-DGLFW_BUILD_TESTS=OFF", "-DGLFW_BUILD_DOCS=OFF",
                     *SMALL_C], "glfw"),
}


def fail(text):
    sys.exit(f"parts.py: {text}")


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        fail(f"{' '.join(str(part) for part in command)} exits with {done.returncode}:\n{done.stdout}")
    return done.stdout


def mirror():
    """The address of the Debian mirror that apt-get of this machine uses, and the keys that sign what is there."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(SIGNED_BY)", "Created-By: Packages")
    for line in targets.splitlines():
        uri, suite, keys = (line.split() + [""])[:3]
        if suite == machine_suite():
            return uri, keys if keys.startswith("/") else "/usr/share/keyrings/debian-archive-keyring.gpg"
    fail(f"apt-get of this machine has no source of {machine_suite()}: packages are made on Debian 12")


class Suite:
    """A suite of that mirror, with lists of its own: the machine's stay as they are."""

    def __init__(self, name, folder):
        self.folder = folder / name
        uri, keys = mirror()
        for subfolder in ("sources", "lists/partial", "cache/archives/partial"):
            (self.folder / subfolder).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources/debian.sources").write_text(
            f"Types: deb deb-src\nURIs: {uri}\nSuites: {name}\nComponents: main\nSigned-By: {keys}\n")
        (self.folder / "apt.conf").write_text(
            f'Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "{self.folder}/sources";\n'
            f'Dir::State::Lists "{self.folder}/lists";\nDir::State::Status "{self.folder}/status";\nDir::Cache "{self.folder}/cache";\n'
            'Acquire::Retries "3";\nAPT::Sandbox::User "";\n')
        self.environment = dict(os.environ, APT_CONFIG=str(self.folder / "apt.conf"))
        run("apt-get", "-qq", "update", env=self.environment)

    def source(self, name, version, into):
        """Unpacks a source package and says its version and the SHA-256 of its files."""
        into.mkdir(parents=True)
        wanted = f"{name}={version}" if version else name
        run("apt-get", "-qq", "source", "--download-only", wanted, env=self.environment, cwd=into)
        description = next(into.glob("*.dsc"))
        run("dpkg-source", "--extract", description, into / "source")
        version = next(line.split()[1] for line in description.read_text().splitlines() if line.startswith("Version: "))
        files = [path for path in sorted(into.iterdir()) if path.is_file()]
        return version, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def unpack(self, packages, into):
        """Unpacks binary packages of one source package, and says its version."""
        run("apt-get", "-qq", "download", *packages, env=self.environment, cwd=self.folder / "cache")
        archives = sorted((self.folder / "cache").glob("*.deb"))
        for archive in archives:
            run("dpkg-deb", "--extract", archive, into)
        return run("dpkg-deb", "--field", archives[0], "Version").strip()


def machine_suite():
    values = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", "").strip('"')


def keep_links_inside(root):
    """Links of a Debian system name files from its root. Those of one that is unpacked elsewhere would lead out of it."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = pathlib.Path(folder, name)
            if path.is_symlink() and os.readlink(path).startswith("/"):
                inside = os.path.relpath(root / os.readlink(path).lstrip("/"), folder)
                path.unlink()
                path.symlink_to(inside)


def make_sysroot(folder, scratch):
    shutil.rmtree(folder, ignore_errors=True)
    version = Suite(OLDER_SUITE, scratch).unpack(["libc6", "libc6-dev"], folder)
    keep_links_inside(folder)
    return version


def build_library(name, source, options, target, folder):
    build = source.parent / "build"
    build.mkdir()
    # In the folder of the build: what HDF5 runs while it is configured writes files where it stands, and reads them there.
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", *options, cwd=build)
    run("cmake", "--build", build, "--parallel", str(os.cpu_count()), "--target", target)
    for archive in build.rglob("*.a"):
        shutil.copy2(archive, folder / archive.name)
    shutil.copy2(source / "debian/copyright", folder / f"{name}.copyright")


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[1]).absolute()
    record = folder / "parts.json"
    recipe = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    versions = {name: run("dpkg-query", "-W", "-f", "${source:Version}", package) for name, (package, _, _) in SOURCES.items() if package}
    if record.exists():
        made = json.loads(record.read_text())
        if made["recipe"] == recipe and all(made["sources"][name]["version"] == version for name, version in versions.items()):
            return
        record.unlink()
    scratch = folder / "scratch"
    for old in (scratch, folder / "lib"):
        shutil.rmtree(old, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    glibc = make_sysroot(folder / "sysroot", scratch)
    suites = {}
    sources = {}
    for name, (_, options, target) in SOURCES.items():
        version = versions.get(name)
        suite_name = machine_suite() if version else NEWER_SUITE
        if suite_name not in suites:
            suites[suite_name] = Suite(suite_name, scratch)
        print(f"parts.py: building {name}", file=sys.stderr)
        version, files = suites[suite_name].source(name, version, scratch / name)
        build_library(name, scratch / name / "source", options, target, folder / "lib")
        sources[name] = {"version": version, "files": files}
    shutil.rmtree(scratch)
    record.write_text(json.dumps({"recipe": recipe, "glibc": glibc, "sources": sources}, indent=1) + "\n")


if __name__ == "__main__":
    main()
