#!/usr/bin/env python3
"""Builds a preset from nothing, without ccache, and lists the files that took the compiler longest.

usage: compile_times.py --preset NAME [--jobs N] [--limit SECONDS]      exit 1: a file took longer than the limit
It is also the compiler launcher of that build: `compile_times.py --log FILE COMPILER ARGUMENT...`. Times are CPU seconds, so
that what else the machine does counts little.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def launch(log, command):
    status = subprocess.call(command)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "-c" in command:
        source = os.path.relpath(command[command.index("-c") + 1], ROOT)
        with open(log, "a") as file:
            file.write(f"{used.ru_utime + used.ru_stime:.2f} {source}\n")
    return status


def main():
    if sys.argv[1:2] == ["--log"]:
        return launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="release")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--limit", type=float, default=8)
    options = parser.parse_args()

    folder = ROOT / "build" / f"{options.preset}-times"
    log = folder / "compile_times.txt"
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--log;{log}"
    start = time.monotonic()
    subprocess.run(["cmake", "--fresh", "--preset", options.preset, "-B", folder, f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "clean"], check=True, stdout=subprocess.DEVNULL)
    log.write_text("")
    subprocess.run(["cmake", "--build", folder, "--parallel", options.jobs], check=True)
    total = time.monotonic() - start

    times = sorted(((float(seconds), name) for seconds, name in (line.split(" ", 1) for line in log.read_text().splitlines())),
                   reverse=True)
    print(f"{len(times)} files, {sum(seconds for seconds, _ in times):.0f} s of CPU time, {total:.0f} s with {options.jobs} jobs")
    for seconds, name in times[:10]:
        print(f"{seconds:6.1f} s  {name}")
    slow = [name for seconds, name in times if seconds > options.limit]
    if slow:
        print(f"over {options.limit:g} s: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
