#!/usr/bin/env python3
"""Checks that the C++ and CUDA sources are as clang-format 14 leaves them.

usage: check_format.py [ROOT]      exit 0: they are, 1: some are not, 77: there is no clang-format 14
"""

import pathlib
import shutil
import subprocess
import sys


def sources(root):
    """The sources under version control and those about to be; without git, all but what was built."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cpp", "*.cu"],
                            cwd=root, capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / line for line in listed.stdout.splitlines() if (root / line).exists()]
    return [path for folder in root.iterdir() if folder.is_dir() and folder.name != "build" for path in folder.rglob("*")
            if path.suffix in (".h", ".cpp", ".cu")]


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    formatter = shutil.which("clang-format-14")
    if not formatter:
        print("skipped: no clang-format-14")
        return 77
    files = sources(root)
    result = subprocess.run([formatter, "--dry-run", "-Werror", f"--style=file:{root / '.clang-format'}", *map(str, files)],
                            capture_output=True, text=True)
    bad = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "-Wclang-format-violations" in line})
    for name in bad:
        print(f"{name}: not formatted; run ./dev format")
    if result.returncode and not bad:
        print(result.stderr)
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
