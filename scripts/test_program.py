#!/usr/bin/env python3
"""Runs tests of a program in one process, and writes down what became of each.

usage: test_program.py [--prefix PREFIX] [--fast | --slow] [--part K/N] [--whole-suites] --results FILE -- PROGRAM...

PROGRAM is one of GoogleTest, or a command that lists and runs its tests as these do. A test is named PREFIX, then as GoogleTest has it,
with the types and values of parameters for their numbers. --slow takes those that have "Slow" in their names, --fast the others; part K
of N of them is every Nth from the Kth on, or with --whole-suites every Nth suite. Where ULPSCOPE_TEST_FILTER is set, only tests in whose
names it is found are run.

FILE gets a line of JSON with the names of the tests, and one for each test that has ended:
    {"tests": [NAME, ...]}
    {"test": NAME, "result": "passed" | "failed" | "skipped", "seconds": N}
so that what has no line was not run to its end. Only what tests that failed said is printed, and why others, or parts of them, were not
run. A test that ends the process has failed, and those that were to come are run in another one.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

FILTER = "ULPSCOPE_TEST_FILTER"
BEGINS = re.compile(r"\[ RUN      \] (\S+)$")
ENDS = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$")
NOT_RUN = ": not run, "
RESULTS = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


@dataclasses.dataclass(frozen=True)
class Test:
    id: str  # what the program calls it
    name: str

    @property
    def suite(self):
        return self.id.split(".")[0]


def named(prefix, listing):
    """The tests that a program lists, with the names that CMake's gtest_discover_tests would give them."""
    suite = typed = pretty = ""
    for line in listing.splitlines():
        head, _, parameter = (part.strip() for part in line.partition("#"))
        if line.startswith("  ") and suite:
            value = parameter.removeprefix("GetParam() = ")
            test = re.sub(r"/\d+$", f"/{value}".replace("\\", r"\\"), head) if value else head
            yield Test(f"{suite}.{head}", f"{prefix}{pretty}.{test}{typed}")
        elif head.endswith("."):
            suite = head[:-1]
            pretty = suite.split("/")[0] if parameter else suite
            typed = f"<{parameter.removeprefix('TypeParam = ')}>" if parameter else ""


@functools.cache
def listing(program):
    return subprocess.run([*program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True).stdout


def listed(options):
    """The tests of this part, whatever the filter."""
    tests = [test for test in named(options.prefix, listing(tuple(options.program)))
             if options.slow is None or options.slow == ("Slow" in test.id)]
    part, parts = options.part
    if not options.whole_suites:
        return tests[part - 1::parts]
    suites = list(dict.fromkeys(test.suite for test in tests))
    mine = set(suites[part - 1::parts])
    return [test for test in tests if test.suite in mine]


def selected(tests, pattern):
    return [test for test in tests if pattern is None or re.search(pattern, test.name)]


class Results:
    def __init__(self, file, tests):
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file.open("w")
        self.failed = False
        self.write({"tests": [test.name for test in tests]})

    def write(self, what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def add(self, name, result, seconds):
        self.failed |= result == "failed"
        self.write({"test": name, "result": result, "seconds": seconds})


def how_it_ended(status):
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"


def reason_of(said):
    """Why a test was skipped, which stands below the place where it says so."""
    return " ".join(line.strip() for line in said if line.strip() and not re.match(r"\S+:\d+: Skipped$", line)) or "it does not say why"


def run(program, tests, results):
    """Runs tests in one process. Gives those that it did not come to."""
    waiting = {test.id: test for test in tests}
    process = subprocess.Popen([*program, "--gtest_filter=" + ":".join(waiting), "--gtest_color=no"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    running, last, any_failed, said, outside = None, None, False, [], []
    for line in map(str.rstrip, process.stdout):
        if (begins := BEGINS.search(line)) and begins[1] in waiting:
            running, said = waiting.pop(begins[1]), []
        elif running and (ends := ENDS.search(line)) and ends[2] == running.id:
            said += filter(None, [line[:ends.start()]])
            result = RESULTS[ends[1]]
            results.add(running.name, result, int(ends[3]) / 1000)
            if result == "failed":
                any_failed = True
                print(f"{running.name} failed:", *said, sep="\n")
            elif result == "skipped":
                print(f"{running.name}{NOT_RUN}{reason_of(said)}")
            running, last, said = None, running, []
        else:
            (said if running else outside).append(line)
            if NOT_RUN in line:
                print(line)
    status = process.wait()
    if running:
        print(f"{running.name} failed: the program {how_it_ended(status)} in it", *said, sep="\n")
        results.add(running.name, "failed", 0)
    elif last is None:
        print(f"the program {how_it_ended(status)} before {', '.join(test.name for test in waiting.values())}:", *outside, sep="\n")
        for test in waiting.values():
            results.add(test.name, "failed", 0)
        return []
    elif waiting or (status != 0 and not any_failed):
        print(f"the program {how_it_ended(status)} after {last.name}:", *outside, sep="\n")
        results.add(f"{last.name}, after it", "failed", 0)
    return list(waiting.values())


def part_of(text):
    part, _, parts = text.partition("/")
    return int(part), int(parts)


def parser():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--fast", dest="slow", action="store_false", default=None)
    parser.add_argument("--slow", dest="slow", action="store_true")
    parser.add_argument("--part", type=part_of, default=(1, 1))
    parser.add_argument("--whole-suites", action="store_true")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("program", nargs="+")
    return parser


def main():
    sys.stdout.reconfigure(line_buffering=True)
    options = parser().parse_args()
    tests = selected(listed(options), os.environ.get(FILTER))
    results = Results(options.results, tests)
    while tests:
        tests = run(options.program, tests, results)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
