#!/usr/bin/env python3
"""Trains PyTorch models of failing/ and healthy/ with the recording on, and holds what reports say against what is known of each.

usage: run.py failing|healthy|recipes [--shard I/N] [--show] [NAME]...
exit 0: all reports are right, 1: some are not, 77: skipped for want of PyTorch or of a built library

A file of failing/ has `train(path, fixed)`, which records into `path` and returns the losses, and TRUTH:

  verdict     of the report
  causes      codes of the report's causes: the first one is its first cause, and further ones may stand in any order
  module, op  of the first cause, where they say something
  step        in which the first cause was seen first
  steps       in how many, where that is known
  says        words that the report has to have
  loss_breaks the first step whose loss is NaN or Inf, None where all are finite: held against the losses themselves
  because     why that is the truth, in words
  fix         the change that mends it, in words: `train(path, fixed=True)` trains with it
  fixed       verdict of the report on that, "ok" where it is not given
  pasted      a snippet of the report that mends it too, by what it does: `train(path, False, paste)` calls paste(model=..., ...)
              where a user would paste it, and goes on with the names that it gives back
  untold      why the report is wrong today: it is expected to be wrong, so that a mend of it is noticed

The report of the mended training must have no finding above info with a code of `causes`, and its losses must be finite.
A file of healthy/ has `train(path)`, and its report must be "ok", with no finding above info. `recipes` trains those of recipes.py.
NAME is that of a file, or of a recipe. --show prints the reports.
"""

import argparse
import ast
import importlib.util
import math
import os
import pathlib
import sys
import tempfile
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
SKIPPED = 77


class Training:
    """A file of failing/ or healthy/."""

    def __init__(self, file):
        self.file, self.name = file, file.stem

    def load(self):
        """The module; None where something that it imports is not installed."""
        spec = importlib.util.spec_from_file_location(f"{self.file.parent.name}_{self.name}", self.file)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            return None
        return module


def above_info(report):
    return [finding for finding in report.findings if finding["severity"] != "info"]


def titles(findings):
    return "; ".join(f"{each['severity']} {each['code']}: {each['title']}" for each in findings)


def strays(truth, losses):
    """What the training itself has otherwise than TRUTH."""
    breaks = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if breaks != truth["loss_breaks"]:
        yield f"the loss breaks in step {breaks}, expected {truth['loss_breaks']}: the training is another one than the truth is about"


def untrue(truth, report):
    """What the report of a failing training has otherwise than TRUTH."""
    if report.verdict != truth["verdict"]:
        yield f"verdict {report.verdict}, expected {truth['verdict']}"
    causes = report.data["causes"]
    codes = [cause["code"] for cause in causes]
    if codes[:1] != truth["causes"][:1]:
        yield f"first cause {codes[:1]}, expected {truth['causes'][:1]}"
    if missing := set(truth["causes"]) - set(codes):
        yield f"causes {codes} lack {sorted(missing)}"
    if codes:
        for key in ("module", "op", "step", "steps"):
            if key in truth and causes[0][key] != truth[key]:
                yield f"{key} {causes[0][key]!r}, expected {truth[key]!r}"
    for words in truth.get("says", ()):
        if words not in " ".join(report.text.split()):
            yield f"the report does not say {words!r}"


def unmended(truth, report, losses):
    if not all(map(math.isfinite, losses)):
        yield "mended: the loss is not finite"
    expected = truth.get("fixed", "ok")
    if report.verdict != expected:
        yield f"mended: verdict {report.verdict}, expected {expected}: {titles(above_info(report))}"
    if left := [each for each in above_info(report) if each["code"] in truth["causes"]]:
        yield f"mended: the report still has {titles(left)}"


def unhealthy(report, losses):
    if not all(map(math.isfinite, losses)):
        yield "the loss is not finite"
    if report.verdict != "ok" or above_info(report):
        yield f"verdict {report.verdict}: {titles(above_info(report))}"


def unpastable(report):
    """Snippets of the report that are no Python."""
    for finding in report.findings:
        for snippet in finding["snippets"]:
            try:
                ast.parse(snippet["code"])
            except SyntaxError as error:
                yield f"{finding['code']}, {snippet['does']}: {error}: {snippet['code']!r}"


def paster(truth, report):
    """A function that executes the snippet that is named, with the names that it is given."""
    code = [snippet["code"] for finding in report.findings for snippet in finding["snippets"] if snippet["does"] == truth["pasted"]]
    if not code:
        raise AssertionError(f"the report has no snippet that does {truth['pasted']}")

    def paste(**names):
        scope = {"torch": sys.modules["torch"], **names}
        exec(compile(code[0], "<pasted>", "exec"), scope)
        return scope

    return paste


class Run:
    """Trains, and collects what is wrong."""

    def __init__(self, folder, shows):
        self.folder, self.shows = folder, shows
        self.count, self.untold, self.skipped, self.failures = 0, 0, 0, []

    def report(self, train, name, reads_text=False):
        import ulpscope

        path = os.path.join(self.folder, f"{name}.h5")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a training that fails may say so, which is no matter of this test
            losses = train(path)
        report = ulpscope.report(path)
        if reads_text or self.shows:
            assert report.text  # read while the trace is there
        if self.shows:
            print(f"\n=== {name}, losses {[float(f'{loss:.4g}') for loss in losses]}\n{report.text}")
            for finding in report.findings:
                for snippet in finding["snippets"]:
                    print(f"--- {finding['code']}: {snippet['does']}\n{snippet['code']}")
            print("findings:", ", ".join(f"{each['severity']} {each['code']}" for each in report.findings))
            keys = ("code", "module", "op", "step", "steps")
            for cause in report.data["causes"]:
                print("cause:", {key: cause[key] for key in keys})
        os.remove(path)
        return report, losses

    def add(self, name, check):
        """check() yields sentences on what is wrong."""
        self.count += 1
        try:
            wrong = list(check())
        except Exception:  # of a training, or a trace that cannot be read: the others still run
            wrong = [traceback.format_exc()]
        for sentence in wrong:
            self.failures.append(name)
            print(f"{name}: {sentence}", flush=True)

    def failing(self, training):
        module = training.load()
        if module is None:
            self.skipped += 1
            return

        def check():
            report, losses = self.report(lambda path: module.train(path, False), training.name, "says" in module.TRUTH)
            yield from strays(module.TRUTH, losses)
            if "untold" in module.TRUTH:
                self.untold += 1
                if not list(untrue(module.TRUTH, report)):
                    yield "the report is right, though TRUTH has `untold`: take that out"
                return
            yield from untrue(module.TRUTH, report)
            yield from unpastable(report)
            yield from unmended(module.TRUTH, *self.report(lambda path: module.train(path, True), training.name + "-mended"))
            if "pasted" in module.TRUTH:
                paste = paster(module.TRUTH, report)
                mended = self.report(lambda path: module.train(path, False, paste), training.name + "-pasted")
                yield from (f"pasted: {sentence}" for sentence in unmended(module.TRUTH, *mended))

        self.add(training.name, check)

    def healthy(self, training):
        module = training.load()
        if module is None:
            self.skipped += 1
            return
        self.add(training.name, lambda: unhealthy(*self.report(module.train, training.name)))

    def recipe(self, recipe):
        self.add(recipe.name, lambda: unhealthy(*self.report(recipe.train, recipe.name)))


def chosen(all_of_them, options):
    """Those that are named, else the shard."""
    if options.names:
        if unknown := set(options.names) - {each.name for each in all_of_them}:
            sys.exit(f"there is no {', '.join(sorted(unknown))}")
        return [each for each in all_of_them if each.name in options.names]
    index, count = map(int, options.shard.split("/"))
    return all_of_them[index - 1 :: count]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("kind", choices=("failing", "healthy", "recipes"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_intermixed_args()
    try:
        import torch
    except ImportError:
        print("skipped: torch cannot be imported")
        return SKIPPED
    if not (os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")):
        print("skipped: ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
        return SKIPPED
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, options.show)
        if options.kind == "recipes":
            sys.path.insert(0, str(HERE))
            from recipes import RECIPES

            for recipe in chosen(RECIPES, options):
                run.recipe(recipe)
        else:
            trainings = [Training(file) for file in sorted((HERE / options.kind).glob("*.py"))]
            for training in chosen(trainings, options):
                getattr(run, options.kind)(training)
    print(f"{run.count} trainings, {len(set(run.failures))} failed, {run.untold} whose report is known to be wrong (untold), "
          f"{run.skipped} skipped for want of transformers")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
