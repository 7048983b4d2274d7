#!/usr/bin/env python3
"""Trains every run of truth.json and holds its report against what is known of it.

usage: check_reports.py ULPSCOPE [--slow] [NAME]...
truth.json has for each run what was built into it: the verdict, the codes of all causes, and of the first one the module, the op and the
first step, as far as these say something. Beside that a healthy report has at most 15 lines and any other at most 40, and every command that a report
suggests on its trace runs. Where h5py and numpy are there, every number of the reports is recomputed from the trace
(recompute_numbers.py), and of the comparison with the first run of the same experiment, and commands have to show what the report says
that they show (recompute/promises.py). Without --slow the presets, which take longer, are left out.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from recompute_numbers import Facts, unmade, wrong

HERE = pathlib.Path(__file__).resolve().parent
EXPERIMENTS = HERE.parent.parent / "experiments"

# docs/findings.md, for programs
CAUSE_FIELDS = ("code", "severity", "title", "module", "op", "step", "steps", "value", "advice", "consequences")

NO_LIMIT = str(10**9)  # seconds of trials: how fast the machine is decides nothing


def call(program, *arguments, cwd=EXPERIMENTS):
    return subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True)


def train(program, run, trace, *options):
    return call(program, "train", run["experiment"], "--threads", "1", "-o", trace, *run["arguments"], *options)


def wrong_answers(run, report):
    """Of `ulpscope nan`: the cause, and by their beginnings which changes keep the run from failing."""
    if report["cause"] != run["nan"]:
        yield f"nan: cause {report['cause']}, expected {run['nan']}"
    tried = {row["values"]["change"]: row["values"]["result"] for table in report["tables"] if table["name"] == "fixes" for row in table["rows"]}
    for expected, begins in [(True, each) for each in run.get("mends", [])] + [(False, each) for each in run.get("does_not_mend", [])]:
        results = [result for change, result in tried.items() if change.startswith(begins)]
        if not results and expected or any((result == "verified") != expected for result in results):
            yield f"nan: {begins!r} is {results or 'not tried'}, expected {'verified' if expected else 'not verified'}"


def mistakes(program, run, trace, first):
    trained = train(program, run, trace)
    if trained.returncode != 0:
        yield f"training failed: {trained.stderr.strip()}"
        return
    report = json.loads(call(program, "report", trace, "--json").stdout)
    if report["verdict"] != run["verdict"]:
        yield f"verdict {report['verdict']}, expected {run['verdict']}: {report['verdict_text']}"
    codes = [cause["code"] for cause in report["causes"]]
    for cause in report["causes"]:
        if tuple(cause) != CAUSE_FIELDS:
            yield f"{cause['code']} has the fields {', '.join(cause)}"
    if codes != run["causes"]:
        yield f"causes {codes}, expected {run['causes']}"
    if run["verdict"] != "healthy" and report["causes"]:
        cause = report["causes"][0]
        for key in ("module", "op", "step"):
            if run[key] not in ("", None) and cause[key] != run[key]:
                yield f"{key} {cause[key]!r}, expected {run[key]!r}: {cause['title']}"
    if "nan" in run:
        yield from wrong_answers(run, json.loads(call(program, "nan", trace, "--json", "--budget", NO_LIMIT).stdout))
    text = call(program, "report", trace).stdout
    lines, most = len(text.splitlines()), 15 if report["verdict"] == "healthy" else 40
    if lines > most:
        yield f"{lines} lines, at most {most}"
    every = call(program, "report", trace, "--all").stdout
    # What is to be run as it stands names the trace; a verb alone is one of another trace, which the words name.
    for command, behind in re.findall(r"`ulpscope ([^`]*)`(.{0,6})", " ".join(every.split())):
        if trace not in command and not (re.fullmatch(r"[a-z]+", command) and re.match(r" (of|with) ", behind)):
            yield f"the report suggests `ulpscope {command}` without its trace"
    for command in set(re.findall(r"`ulpscope ([^`]* " + re.escape(trace) + r"[^`]*)`", " ".join(every.split()))):
        suggested = call(program, *shlex.split(command))
        if suggested.returncode != 0 or not suggested.stdout.strip():
            yield f"the report suggests `ulpscope {command}`: {suggested.stderr.strip() or 'it prints nothing'}"
    if Facts is not None:
        fp32 = trace + ".fp32.h5"
        yield from wrong(program, trace, first, report, text, every, lambda: train(program, run, fp32, "--precision", "fp32") and fp32)
        pathlib.Path(fp32).unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    failed = checked = 0
    first = {}  # trace of each experiment
    if Facts is None:
        print("the numbers of the reports are not recomputed: h5py or numpy cannot be imported")
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(json.loads((HERE / "truth.json").read_text())):
            name = pathlib.Path(run["experiment"]).stem
            is_preset = not run["experiment"].startswith("failures/")
            if options.names and name not in options.names or is_preset and not (options.slow or options.names):
                continue
            trace = str(pathlib.Path(folder) / f"{number}.h5")
            checked += 1
            for mistake in mistakes(program, run, trace, first.setdefault(run["experiment"], trace)):
                failed += 1
                print(f"{name} {' '.join(run['arguments'])}: {mistake}")
            if first[run["experiment"]] != trace:
                pathlib.Path(trace).unlink(missing_ok=True)
    if Facts is not None and not options.names:
        for check in unmade:
            failed += 1
            print(f"no report promises what recompute/promises.py holds {check.__name__}() to")
    print(f"{checked} runs, {failed} mistakes")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
