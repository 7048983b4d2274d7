#!/usr/bin/env python3
"""Builds a preset from nothing, without ccache, and lists the files that took the compiler longest.

usage: compile_times.py --preset NAME [--jobs N] [--limit SECONDS]      exit 1: a file took longer than the limit
It is also the launcher of that build's compiler and linker: `compile_times.py --log FILE COMPILER ARGUMENT...`. Times are CPU seconds, so
that what else the machine does counts little. A file is a source, or those that are compiled as one.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHOWN = 20
NOT_OF_THE_PROGRAM = ("tests", "bench", "examples")


def launch(log, command):
    status = subprocess.call(command)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    kind = "compile" if "-c" in command else "link"
    made = os.path.relpath(command[command.index("-o") + 1])  # the build folder is where it runs
    with open(log, "a") as file:
        file.write(f"{used.ru_utime + used.ru_stime:.2f} {kind} {made}\n")
    return status


def summed(times, kind, of_program):
    return sum(seconds for seconds, of_kind, made in times
               if of_kind == kind and (made.split("/")[0] not in NOT_OF_THE_PROGRAM) == of_program)


def main():
    if sys.argv[1:2] == ["--log"]:
        return launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="release")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--limit", type=float, default=60)
    options = parser.parse_args()

    folder = ROOT / "build" / f"{options.preset}-times"
    log = folder / "compile_times.txt"
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--log;{log}"
    start = time.monotonic()
    subprocess.run(["cmake", "--fresh", "--preset", options.preset, "-B", folder, f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "clean"], check=True, stdout=subprocess.DEVNULL)
    log.write_text("")
    subprocess.run(["cmake", "--build", folder, "--parallel", options.jobs], check=True)
    total = time.monotonic() - start

    lines = (line.split(" ", 2) for line in log.read_text().splitlines())
    times = sorted(((float(seconds), kind, made) for seconds, kind, made in lines), reverse=True)
    files = [(seconds, made) for seconds, kind, made in times if kind == "compile"]
    print(f"{'CPU seconds':24}{'compiling':>10}{'linking':>10}")
    for name, of_program in (("program", True), ("tests and benchmarks", False)):
        print(f"{name:24}{summed(times, 'compile', of_program):10.0f}{summed(times, 'link', of_program):10.0f}")
    cpu = sum(seconds for seconds, _, _ in times)
    print(f"{len(files)} files, {cpu:.0f} CPU seconds in all, {cpu / max(1, len(files)):.1f} a file, {total:.0f} s with {options.jobs} jobs")
    for seconds, made in files[:SHOWN]:
        print(f"{seconds:6.1f} s  {made}")
    print(f"all: {os.path.relpath(log)}")
    slow = [made for seconds, made in files if seconds > options.limit]
    if slow:
        print(f"over {options.limit:g} s: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
