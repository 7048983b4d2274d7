#!/usr/bin/env python3
"""Runs a case: the commands of its transcript, held against what they print.

usage: run.py PROGRAM CASE [--renew]      exit 0: all print what they should, 1: some do not, and the difference is shown

A case is a folder. Its files are put into an empty one, those that end in .gz unpacked, and the lines of transcript.txt that begin with
"$ ulpscope " are run there. What follows such a line, up to the next, is what it has to print, errors too; a last line "[N]" is an exit
code that is not 0. --renew writes the transcript anew: read its difference before you commit it.
"""

import difflib
import gzip
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

PROMPT = "$ ulpscope "


def unpack(case, folder):
    for path in case.iterdir():
        if path.name == "transcript.txt":
            continue
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as packed, open(folder / path.stem, "wb") as out:
                shutil.copyfileobj(packed, out)
        else:
            shutil.copy(path, folder)


def printed(program, line, folder):
    done = subprocess.run([program, *shlex.split(line[len(PROMPT):])], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, encoding="utf-8", env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"})
    text = "\n".join(part.rstrip() for part in done.stdout.splitlines())
    return line + "\n" + (text + "\n" if text else "") + (f"[{done.returncode}]\n" if done.returncode else "")


def main():
    program, case, renews = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]), "--renew" in sys.argv[3:]
    transcript = case / "transcript.txt"
    expected = transcript.read_text(encoding="utf-8")
    lines = [line for line in expected.splitlines() if line.startswith(PROMPT)]
    if not lines:
        sys.exit(f"{transcript}: expected lines that begin with '{PROMPT}'")
    with tempfile.TemporaryDirectory() as name:
        unpack(case, pathlib.Path(name))
        found = "\n".join(printed(program, line, name) for line in lines)
    if renews:
        transcript.write_text(found, encoding="utf-8")
    elif found != expected:
        sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), found.splitlines(True), "expected", "printed"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
