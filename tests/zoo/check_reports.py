#!/usr/bin/env python3
"""Trains every run of truth.json, and those that `ulpscope findings` says show a finding, each once, and holds their reports against what is
known of them.

usage: check_reports.py ULPSCOPE [--presets] [NAME]...
       check_reports.py ULPSCOPE [--presets] --gtest_list_tests | --gtest_filter=TEST[:TEST]...
truth.json has for each run what was built into it: the verdict, the codes of all causes, and of the first one the module, the op and the
first step, as far as these say something, and words of the page or of `ulpscope nan` (says). Beside that a report has at most 15 lines, its sentences keep to recompute/words.py, every
command that a report suggests on its trace runs, and nothing that it advises on NaN, Inf or overflow fails where `ulpscope nan` tries it. Where h5py and numpy are there, every number of the reports is recomputed from the trace
(recompute_numbers.py), and of the comparison with the first run of the same experiment, and commands have to show what the report says
that they show (recompute/promises.py). A run that shows a finding has it in its report.

With --presets these are run, which take longer, and without it all others. NAME is that of an experiment. The options of GoogleTest list
the runs, as tests of a suite for each experiment, and run some, for scripts/test_program.py.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import sys
import tempfile
import time
import traceback

from recompute.program import Program
from recompute.words import check_page
from recompute_numbers import Facts, promising_runs, wrong

HERE = pathlib.Path(__file__).resolve().parent
EXPERIMENTS = HERE.parent.parent / "experiments"

# docs/findings.md, for programs
CAUSE_FIELDS = ("code", "severity", "title", "module", "op", "location", "step", "steps", "value", "advice", "snippets", "consequences")

NO_LIMIT = str(10**9)  # seconds of trials: how fast the machine is decides nothing
SHOWN = re.compile(r"^## (\S+)$|^\*Shown by\.\* `ulpscope train (.+)`$", re.M)


@dataclasses.dataclass
class Run:
    experiment: str
    arguments: tuple
    truth: dict | None = None  # what was built into it
    shows: set = dataclasses.field(default_factory=set)  # codes of findings

    @property
    def suite(self):
        return pathlib.Path(self.experiment).stem

    @property
    def name(self):
        """The experiment, and what is changed of it: scaler_thrashes.scaler.initial=1024,scaler.cap=1024."""
        changes, words = [], list(self.arguments)
        while words:
            option, value = words.pop(0).removeprefix("--"), words.pop(0)
            changes.append(value if option == "set" else f"{option}={pathlib.Path(value).name}")
        return f"{self.suite}.{','.join(changes) or 'default'}"

    @property
    def is_preset(self):
        return not self.experiment.startswith("failures/") and not self.shows


def all_runs(program):
    runs = {}
    for truth in json.loads((HERE / "truth.json").read_text()):
        experiment, arguments = truth["experiment"], tuple(truth["arguments"])
        runs[experiment, arguments] = Run(experiment, arguments, truth)
    code = None
    for heading, command in SHOWN.findall(program.told("findings")):
        code = heading or code
        if command:
            experiment, *arguments = (word.removeprefix("experiments/") for word in shlex.split(command))
            runs.setdefault((experiment, tuple(arguments)), Run(experiment, tuple(arguments))).shows.add(code)
    if unknown := promising_runs - {run.name for run in runs.values()}:
        sys.exit(f"recompute/promises.py names runs that there are not: {', '.join(sorted(unknown))}")
    return list(runs.values())


def train(program, run, trace, *options):
    return program.run("train", run.experiment, "--threads", "1", "-o", trace, *run.arguments, *options)


def tried_changes(report):
    """Of `ulpscope nan`: by what is changed, "words: settings", what came of it."""
    return {row["values"]["change"]: row["values"]["result"] for table in report["tables"] if table["name"] == "fixes" for row in table["rows"]}


def wrong_answers(truth, report):
    """Of `ulpscope nan`: the cause, and by their beginnings which changes keep the run from failing."""
    if report["cause"] != truth["nan"]:
        yield f"nan: cause {report['cause']}, expected {truth['nan']}"
    tried = tried_changes(report)
    for expected, begins in [(True, each) for each in truth.get("mends", [])] + [(False, each) for each in truth.get("does_not_mend", [])]:
        results = [result for change, result in tried.items() if change.startswith(begins)]
        if not results and expected or any((result == "verified") != expected for result in results):
            yield f"nan: {begins!r} is {results or 'not tried'}, expected {'verified' if expected else 'not verified'}"


# What a change that is advised sets, as trials write it.
SETS = {
    "precision_of_modules": 'autocast.modules."{module}" = {value}',
    "precision": 'precision = "{pure}{value_text}"',
    "loss_factor": "loss.factor = ",
    "scale_enabled": "scaler.enabled = {value}",
    "scale_dynamic": "scaler.dynamic = {value}",
    "scale_initial": "scaler.initial = ",
    "scale_floor": "scaler.floor = ",
    "update_math": "optimizer.math = {value}",
    "master_weights": "optimizer.master_weights = {value}",
}


def refuted(report, nan):
    """What the report advises on a cause of its family, and all trials of it fail."""
    tried = tried_changes(nan)
    for cause in report["causes"]:
        finding = next(each for each in report["findings"] if (each["code"], each["title"]) == (cause["code"], cause["title"]))
        if not finding["code"].startswith(("range.values_overflow", "range.gradients_overflow", "range.nonfinite")):
            continue
        for change in finding["changes"]:
            if change["setting"] == "epsilon":
                sets = "eps of " if change.get("module") else "optimizer.eps = "
            elif change["setting"] in SETS:
                value = change.get("value", "")
                texts = [
                    SETS[change["setting"]].format(module=change.get("module", ""), value=value, value_text=value.strip('"'), pure=pure)
                    for pure in ("", "pure_")
                ]
                sets = next((text for text in texts if any(text in each for each in tried)), texts[0])
            else:
                continue
            results = [result for each, result in tried.items() if sets in each.partition(": ")[2]]
            if results and all(result == "fails" for result in results):
                yield f"the report advises {sets!r}, and `ulpscope nan` finds that it fails"


def promises_trials(report):
    ids = [sentence["id"] for finding in report["findings"] for sentence in finding["suggestion_sentences"]]
    return any(id.startswith("advice.nan_tries") for id in ids)


def untrue(program, run, trace, first, report):
    """What a report says otherwise than truth.json, and what is wrong with its commands and numbers. `first`: the trace of the first run of
    the experiment."""
    truth = run.truth
    if report["verdict"] != truth["verdict"]:
        yield f"verdict {report['verdict']}, expected {truth['verdict']}: {report['verdict_text']}"
    codes = [cause["code"] for cause in report["causes"]]
    for cause in report["causes"]:
        if tuple(cause) != CAUSE_FIELDS:
            yield f"{cause['code']} has the fields {', '.join(cause)}"
    if codes != truth["causes"]:
        yield f"causes {codes}, expected {truth['causes']}"
    if truth["verdict"] != "ok" and report["causes"]:
        cause = report["causes"][0]
        for key in ("module", "op", "step"):
            if truth[key] not in ("", None) and cause[key] != truth[key]:
                yield f"{key} {cause[key]!r}, expected {truth[key]!r}: {cause['title']}"
    told = ""
    if "nan" in truth or promises_trials(report):
        nan = json.loads(program.ask("nan", trace, "--json", "--budget", NO_LIMIT).stdout)
        told = " ".join([nan["verdict_text"], *(finding["suggestion"] for finding in nan["findings"])])
        if "nan" in truth:
            yield from wrong_answers(truth, nan)
        if promises_trials(report) and not tried_changes(nan):
            yield "the report says that `ulpscope nan` tries what it advises, and it tries nothing"
        yield from refuted(report, nan)
    text = program.ask("report", trace).stdout
    yield from check_page(report, text)
    every = program.ask("report", trace, "--all").stdout
    told = " ".join(f"{told} {every}".split())
    yield from (f"it does not say {words!r}" for words in truth.get("says", ()) if words not in told)
    # What is to be run as it stands names the trace; a verb alone is one of another trace, which the words name.
    for command, behind in re.findall(r"`ulpscope ([^`]*)`(.{0,6})", " ".join(every.split())):
        if trace not in command and not (re.fullmatch(r"[a-z]+( --format \w+)?", command) and re.match(r" (of|with) ", behind)):
            yield f"the report suggests `ulpscope {command}` without its trace"
    for command in set(re.findall(r"`ulpscope ([^`]* " + re.escape(trace) + r"[^`]*)`", " ".join(every.split()))):
        suggested = program.ask(*shlex.split(command))
        if suggested.returncode != 0 or not suggested.stdout.strip():
            yield f"the report suggests `ulpscope {command}`: {suggested.stderr.strip() or 'it prints nothing'}"
    if Facts is not None:
        fp32 = trace + ".fp32.h5"
        yield from wrong(program, trace, first, run.name, report, text, every, lambda: train(program, run, fp32, "--precision", "fp32") and fp32)
        pathlib.Path(fp32).unlink(missing_ok=True)


class Zoo:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.runs = all_runs(self.new_program())

    def new_program(self):
        return Program(self.program, EXPERIMENTS)

    def trace_of(self, run):
        return pathlib.Path(self.folder) / f"{self.runs.index(run)}.h5"

    def first_of(self, run):
        """The first run of its experiment in truth.json, trained."""
        first = next(each for each in self.runs if each.truth and each.experiment == run.experiment)
        if not self.trace_of(first).exists():
            train(self.new_program(), first, str(self.trace_of(first)))
        return first

    def mistakes(self, run):
        program, trace = self.new_program(), str(self.trace_of(run))
        trained = train(program, run, trace)
        if trained.returncode != 0:
            yield f"training failed: {trained.stderr.strip()}"
            return
        report = json.loads(program.ask("report", trace, "--json").stdout)
        found = {finding["code"] for finding in report["findings"]}
        yield from (f"shows no {code}" for code in sorted(run.shows - found))
        first = self.first_of(run) if run.truth else None
        if first:
            yield from untrue(program, run, trace, str(self.trace_of(first)), report)
        if first is not run:
            pathlib.Path(trace).unlink()

    def passes(self, run):
        """Says it as GoogleTest says it of a test."""
        print(f"[ RUN      ] {run.name}")
        begin = time.monotonic()
        try:
            found = list(self.mistakes(run))
        except Exception:  # of this run, which the others have nothing to do with
            found = [traceback.format_exc()]
        for mistake in found:
            print(f"{run.name}: {mistake}")
        print(f"{'[  FAILED  ]' if found else '[       OK ]'} {run.name} ({1000 * (time.monotonic() - begin):.0f} ms)")
        return not found

    def passes_apart(self, run):
        """In a process of its own, so that the memory that its tables take is given back."""
        child = os.fork()
        if child == 0:
            os._exit(0 if self.passes(run) else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def list_tests(runs):
    for suite in dict.fromkeys(run.suite for run in runs):
        print(f"{suite}.", *(run.name.removeprefix(suite + ".") for run in runs if run.suite == suite), sep="\n  ")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--presets", action="store_true")
    parser.add_argument("--gtest_list_tests", action="store_true")
    parser.add_argument("--gtest_filter")
    parser.add_argument("--gtest_color")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        zoo = Zoo(str(pathlib.Path(options.program).resolve()), folder)
        tests = options.gtest_filter.split(":") if options.gtest_filter else []
        runs = [run for run in zoo.runs if run.suite in options.names or run.name in tests] if options.names or tests else [
            run for run in zoo.runs if run.is_preset == options.presets]
        if options.gtest_list_tests:
            list_tests(runs)
            return 0
        if Facts is None:
            print("zoo: not run, the numbers of reports are not recomputed: h5py or numpy cannot be imported")
        failed = sum(not zoo.passes_apart(run) for run in runs)
        print(f"{len(runs)} runs, {failed} with mistakes")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
