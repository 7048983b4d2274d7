#!/usr/bin/env python3
"""Runs the tests of a preset with ctest, and counts tests where ctest counts processes.

    test_suite.py run PRESET --tests TESTS [--jobs N] [--label-regex REGEX] [--tests-regex REGEX] [--no-tests=ignore]
                                 adds to TESTS a line of JSON for each test; exits with 1 where one failed, or none was found
    test_suite.py summary TESTS  the slowest ten, and the count of all
    test_suite.py budget TESTS   minutes by preset and program, as docs/building.md has them

An entry of ctest that runs test_program.py stands for the tests that this writes down; one that it has not seen end has failed. Any
other entry is a test itself. --tests-regex is held to the names of tests, and of an entry only those that it finds are run.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import test_program

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOWEST = 10


def entries_of(preset, labels):
    """What ctest would run: the options of test_program.py by the name of an entry, or None for any other command."""
    listing = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1", *labels], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    entries = {}
    for test in json.loads(listing)["tests"]:
        command = test.get("command", [])
        at = next((i for i, word in enumerate(command) if word.endswith("/test_program.py")), None)
        entries[test["name"]] = None if at is None else test_program.parser().parse_args(command[at + 1:])
    return entries


def is_built(program):
    return all(pathlib.Path(word).exists() for word in program if word.startswith("/"))


def is_selected(name, options, pattern):
    if options is None or not is_built(options.program):
        return bool(re.search(pattern, name))
    return bool(test_program.selected(test_program.listed(options), pattern))


def tests_of(entry, options, status, seconds):
    """(name, result, seconds) of each test that an entry stands for. `status`: passed, failed or skipped, as ctest has it."""
    if options is None or not options.results.exists():
        yield entry, status, seconds
        return
    lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    ended = {line["test"]: line for line in lines if "test" in line}
    for line in ended.values():
        yield line["test"], line["result"], line["seconds"]
    unfinished = [name for line in lines for name in line.get("tests", []) if name not in ended]
    for name in unfinished:
        yield name, "failed", 0
    if status == "failed" and not unfinished and all(line["result"] != "failed" for line in ended.values()):
        yield entry, "failed", seconds
    if unfinished:
        print(f"{entry} ended in {unfinished[0]}" + (f", with {len(unfinished) - 1} more to come" if len(unfinished) > 1 else ""))


def status_of(case):
    """Of an element of JUnit's XML as ctest writes it."""
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    return "skipped" if skipped is not None and skipped.get("message", "").startswith("SKIP_") else "failed"


def run(arguments):
    build = ROOT / "build" / arguments.preset
    report = build / "tests.xml"
    labels = ["--label-regex", arguments.label_regex] if arguments.label_regex else []
    entries = entries_of(arguments.preset, labels)
    command = ["ctest", "--preset", arguments.preset, "--parallel", str(arguments.jobs), "--output-junit", report, *labels]
    environment = dict(os.environ)
    if arguments.tests_regex:
        names = [name for name, options in entries.items() if is_selected(name, options, arguments.tests_regex)]
        if not names and arguments.no_tests == "ignore":
            return 0
        if not names:
            print(f"no test has a name that {arguments.tests_regex!r} finds")
            return 1
        command += ["--tests-regex", "^(" + "|".join(re.sub(r"([^\w/-])", r"[\1]", name) for name in names) + ")$"]
        environment[test_program.FILTER] = arguments.tests_regex
    report.unlink(missing_ok=True)
    for options in filter(None, entries.values()):
        options.results.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if not report.exists():
        return status or 1
    said = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    for line in said.splitlines():
        if test_program.NOT_RUN in line:
            print(line)
    with arguments.tests.open("a") as tests:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            entry = case.get("name")
            for name, result, seconds in tests_of(entry, entries.get(entry), status_of(case), float(case.get("time"))):
                tests.write(json.dumps({"preset": arguments.preset, "test": name, "result": result, "seconds": seconds}) + "\n")
    return 1 if status else 0


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def named(test, presets):
    return test["test"] + (f" ({test['preset']})" if presets > 1 else "")


def summary(arguments):
    tests = read(arguments.tests)
    presets = len({test["preset"] for test in tests})
    slowest = sorted(tests, key=lambda test: -test["seconds"])[:SLOWEST]
    if len(tests) > SLOWEST:
        print(f"The slowest {SLOWEST} of {len(tests):,} tests:")
        for test in slowest:
            print(f"  {test['seconds']:7.1f} s  {named(test, presets)}")
    for test in tests:
        if test["result"] == "failed":
            print(f"failed: {named(test, presets)}")
    count = collections.Counter(test["result"] for test in tests)
    print(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))
    return 0


def budget(arguments):
    seconds, tests = collections.Counter(), collections.Counter()
    for test in read(arguments.tests):
        key = test["preset"], test["test"].split(".")[0]
        seconds[key] += test["seconds"]
        tests[key] += 1
    print("| preset | tests of | tests | minutes of one core |\n|---|---|---|---|")
    for key, total in seconds.most_common():
        print(f"| {key[0]} | {key[1]} | {tests[key]:,} | {total / 60:.1f} |")
    return 0


def main():
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser(usage=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("preset")
    runs.add_argument("--tests", type=pathlib.Path, required=True)
    runs.add_argument("--jobs", type=int, default=os.cpu_count())
    runs.add_argument("--label-regex")
    runs.add_argument("--tests-regex")
    runs.add_argument("--no-tests", choices=["ignore", "error"], default="error")
    for verb in ("summary", "budget"):
        verbs.add_parser(verb).add_argument("tests", type=pathlib.Path)
    arguments = parser.parse_args()
    return {"run": run, "summary": summary, "budget": budget}[arguments.verb](arguments)


if __name__ == "__main__":
    sys.exit(main())
