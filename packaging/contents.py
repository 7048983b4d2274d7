#!/usr/bin/env python3
"""Says what is inside of a package: an SBOM, and the licences of all that is in the program.

usage: contents.py --version VERSION --map FILE... --build FOLDER --parts FOLDER --output FOLDER NAME=FILE...
                   [--beside LIBRARY=NAME=FILE]...

FILE is a program or a library of the project, and NAME what it is called in the package. Read are the linker's maps of these, which name
each archive that a member was taken of, and what the compiler noted of the headers that the sources include. Which Debian package a file
belongs to, dpkg says. LIBRARY is one of Debian that lies beside them. Written are ulpscope.spdx.json (SPDX 2.3) and licences/. It fails
where a package has no licence in the table below.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

# Debian source package -> the licences, as SPDX names them, of what of it is in the program.
LICENCES = {
    "boost1.74": "BSL-1.0",
    "cli11": "BSD-3-Clause",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glfw3": "Zlib",
    "glibc": "LGPL-2.1-or-later",
    "hdf5": "BSD-3-Clause",
    "highway": "Apache-2.0",
    "imgui": "MIT",
    "libcsv": "LGPL-2.1-or-later",
    "libpng1.6": "libpng-2.0",
    "libstb": "MIT",
    "nlohmann-json3": "MIT",
    "onednn": "Apache-2.0 AND BSD-3-Clause",
    "tomlplusplus": "MIT",
    "zlib": "Zlib",
}
# Interfaces of the system, which the program finds where it runs: nothing of them is in it.
INTERFACES = {"glibc", "linux", "libx11", "xorgproto", "libglvnd", "mesa"}
CHANGED = "Changed: asks for no newer glibc than the program does, and for no OpenCL."


class Part:
    """What a program has of one source package: how, in which Debian packages, and the SHA-256 of the files that were taken."""

    def __init__(self, version):
        self.version, self.how, self.packages, self.files, self.copyright = version, "CONTAINS", set(), {}, None


def fail(text):
    sys.exit(f"contents.py: {text}")


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def digest(path, algorithm="sha256"):
    return hashlib.new(algorithm, path.read_bytes()).hexdigest()


def linked_archives(link_map):
    """The archives that the linker took members of."""
    # A list of the archives' members, each with what wanted it, is all that comes before what was discarded.
    found = re.findall(r"^(/.*\.a)\(", link_map.read_text().partition("\nDiscarded input sections")[0], re.MULTILINE)
    return {pathlib.Path(os.path.realpath(path)) for path in found}


def included_headers(build):
    """The headers outside of the project that sources of the program include, as ninja noted them."""
    headers = set()
    is_ours = False
    # -n: a build that goes on has these files open.
    for line in output_of("ninja", "-n", "-C", build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            is_ours = re.match(r"(?!tests/|bench/)[^:]*/CMakeFiles/ulpscope\w*\.dir/", line) is not None
        elif is_ours and line.strip().startswith("/usr/"):
            headers.add(pathlib.Path(os.path.realpath(line.strip())))
    return headers


def packages_of(paths):
    """For each path the Debian package that has it."""
    paths = sorted(paths)
    owners = {}
    if paths:
        done = subprocess.run(["dpkg-query", "--search", *map(str, paths)], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            names, path = line.split(": ", 1)
            owners[pathlib.Path(path)] = names.split(",")[0]
    for path in paths:
        if path not in owners:
            fail(f"no Debian package has {path}")
    return owners


class Parts:
    """What a program has of each source package. `folder` is what parts.py made."""

    def __init__(self, folder):
        self.parts = {}
        self.folder = folder
        self.made = json.loads((folder / "parts.json").read_text())

    def add_files(self, paths, how):
        for path, package in packages_of(paths).items():
            name, version = output_of("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package).split()
            if name in INTERFACES and how == "CONTAINS":
                continue
            part = self.parts.setdefault(name, Part(version))
            part.packages.add(package.split(":")[0])
            part.copyright = pathlib.Path("/usr/share/doc", package.split(":")[0], "copyright")
            if how != "CONTAINS":
                part.how = how
                part.files[path.name] = digest(path)

    def add_made(self):
        """The libraries that were built, and the start of a program, which is glibc's."""
        for name, source in self.made["sources"].items():
            part = self.parts[name] = Part(source["version"])
            part.how, part.files = "STATIC_LINK", source["files"]
            part.copyright = self.folder / "lib" / f"{name}.copyright"
        part = self.parts["glibc"] = Part(self.made["glibc"])
        part.how, part.packages = "STATIC_LINK", {"libc6-dev"}
        part.copyright = self.folder / "sysroot/usr/share/doc/libc6/copyright"


def spdx_id(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.]", "-", name)


def package_entry(name, part):
    comment = []
    if part.packages:
        comment.append(f"From the Debian packages {', '.join(sorted(part.packages))}.")
    if part.files:
        comment.append("SHA-256: " + "; ".join(f"{file} {value}" for file, value in sorted(part.files.items())) + ".")
    if name == "onednn":
        comment.append(CHANGED)
    return {
        "SPDXID": spdx_id("Package", name),
        "name": name,
        "versionInfo": part.version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": LICENCES[name],
        "licenseDeclared": LICENCES[name],
        "copyrightText": "NOASSERTION",
        "comment": " ".join(comment),
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(part.version, safe='')}?arch=source",
        }],
    }


def file_entry(path, name):
    return {
        "SPDXID": spdx_id("File", name),
        "fileName": f"./{name}",
        "fileTypes": ["BINARY"],
        "checksums": [{"algorithm": kind.upper(), "checksumValue": digest(path, kind)} for kind in ("sha1", "sha256")],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def without_lists_of_files(text):
    """A copyright text of Debian whose stanzas no longer name each of their files: of Boost those are two megabytes."""
    return re.sub(r"^Files:[^\n]*\n([ \t][^\n]*\n)+", "Files: several\n", text, flags=re.MULTILINE)


def document(version, named, parts):
    """`named` has a name and a path for each file that was linked, or lies beside."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    ours = spdx_id("Package", "ulpscope")
    files = [file_entry(path, name) for name, path in named]
    identity = hashlib.sha256("".join(digest(path) for _, path in named).encode()).hexdigest()
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours)]
    relations += [(ours, "CONTAINS", file["SPDXID"]) for file in files]
    relations += [(ours, part.how, spdx_id("Package", name)) for name, part in sorted(parts.items())]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"ulpscope-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/ulpscope-{version}-{identity}",
        "creationInfo": {"created": created, "creators": ["Tool: ulpscope-packaging/contents.py"]},
        "packages": [{
            "SPDXID": ours,
            "name": "ulpscope",
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": "Apache-2.0",
            "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION",
            "primaryPackagePurpose": "APPLICATION",
        }] + [package_entry(name, part) for name, part in sorted(parts.items())],
        "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--version", "--build", "--parts", "--output"):
        parser.add_argument(option, required=True, type=str if option == "--version" else pathlib.Path)
    parser.add_argument("--map", required=True, action="append", type=pathlib.Path)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("linked", nargs="+")
    arguments = parser.parse_args()

    found = Parts(arguments.parts)
    system = {path for link_map in arguments.map for path in linked_archives(link_map) if path.is_relative_to("/usr")}
    found.add_files(included_headers(arguments.build), "CONTAINS")
    found.add_files(system, "STATIC_LINK")
    named = [linked.split("=", 1) for linked in arguments.linked]
    for beside in arguments.beside:
        library, name, file = beside.split("=", 2)
        found.add_files({pathlib.Path(os.path.realpath(library))}, "DYNAMIC_LINK")
        named.append((name, file))
    found.add_made()

    unknown = sorted(set(found.parts) - set(LICENCES))
    if unknown:
        fail(f"no licence is known of {', '.join(unknown)}: packaging/contents.py has the table")
    shutil.rmtree(arguments.output, ignore_errors=True)
    (arguments.output / "licences").mkdir(parents=True)
    for name, part in found.parts.items():
        text = without_lists_of_files(part.copyright.read_text(encoding="utf-8"))
        (arguments.output / "licences" / f"{name}.txt").write_text(text, encoding="utf-8")
    # The licences that Debian's texts name and do not repeat.
    for name in ("Apache-2.0", "GPL-3", "LGPL-2.1"):
        shutil.copyfile(pathlib.Path("/usr/share/common-licenses", name), arguments.output / "licences" / f"{name}.txt")
    text = json.dumps(document(arguments.version, [(name, pathlib.Path(file)) for name, file in named], found.parts), indent=1)
    (arguments.output / "ulpscope.spdx.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
