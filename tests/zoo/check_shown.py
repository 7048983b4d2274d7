#!/usr/bin/env python3
"""Trains the runs that `ulpscope findings` says show a finding, each once, and checks that their reports have these findings.

usage: check_shown.py ULPSCOPE
"""

import collections
import json
import pathlib
import re
import shlex
import sys
import tempfile

from check_reports import call

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHOWN = re.compile(r"^## (\S+)$|^\*Shown by\.\* `ulpscope train (.+)`$", re.M)


def codes_by_run(program):
    """What a run is trained with, and the codes of the findings that it shows."""
    runs, code = collections.defaultdict(set), None
    for heading, run in SHOWN.findall(call(program, "findings", cwd=ROOT).stdout):
        code = heading or code
        if run:
            runs[run].add(code)
    return runs


def mistakes(program, run, codes, trace):
    trained = call(program, "train", *shlex.split(run), "--threads", "1", "-o", trace, cwd=ROOT)
    if trained.returncode != 0:
        yield f"training failed: {trained.stderr.strip()}"
        return
    found = {finding["code"] for finding in json.loads(call(program, "report", trace, "--json").stdout)["findings"]}
    for code in sorted(codes - found):
        yield f"shows no {code}"


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    failed, runs = 0, codes_by_run(program)
    with tempfile.TemporaryDirectory() as folder:
        for number, (run, codes) in enumerate(runs.items()):
            trace = str(pathlib.Path(folder) / f"{number}.h5")
            for mistake in mistakes(program, run, codes, trace):
                failed += 1
                print(f"{run}: {mistake}")
            pathlib.Path(trace).unlink(missing_ok=True)
    print(f"{len(runs)} runs that show {sum(map(len, runs.values()))} findings, {failed} mistakes")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
