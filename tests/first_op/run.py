#!/usr/bin/env python3
"""Trains the pairs of pairs.py and asks `ulpscope compare` for the first output that differs.

    run.py PROGRAM [NAME...]   exits with 1 where a pair is not named as it has to be."""

import json
import pathlib
import subprocess
import sys
import tempfile

import pairs

HERE = pathlib.Path(__file__).resolve().parent


class Runs:
    """Traces of sides, each trained once."""

    def __init__(self, program, folder):
        self.program, self.folder, self.traces = program, pathlib.Path(folder), {}

    def trace(self, model, changes):
        key = (model, tuple(changes))
        if key not in self.traces:
            self.traces[key] = self.folder / f"{len(self.traces)}.h5"
            self.train(model, changes, self.traces[key])
        return self.traces[key]

    def train(self, model, changes, trace):
        words = {"EPS": "1e-5", "ACTIVATION": "gelu"}
        words |= dict(change.split("=", 1) for change in changes if change.startswith(("EPS=", "ACTIVATION=")))
        text = (HERE / f"{model}.toml").read_text().replace("TEXT", str(HERE / "block.toml"))
        for word, value in words.items():
            text = text.replace(word, value)
        injected = [change.removeprefix("inject:") for change in changes if change.startswith("inject:")]
        if injected:
            text += "\n[[inject]]\n" + "\n".join(injected) + "\n"
        experiment = trace.with_suffix(".toml")
        experiment.write_text(text)
        command = [self.program, "train", str(experiment), "-o", str(trace), "--record", "stats,bits"]
        for change in changes:
            if change.startswith("--"):
                command += change.split(" ", 1)
            elif not change.startswith(("EPS=", "ACTIVATION=", "inject:")):
                command += ["--set", change]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")

    def compare(self, pair):
        return self.compare_traces(self.trace(pair.model, pair.base), self.trace(pair.model, pair.base + pair.changes))

    def compare_traces(self, a, b):
        done = subprocess.run([self.program, "compare", str(a), str(b), "--format", "json"], capture_output=True, text=True, check=False)
        if done.returncode > 1:
            raise SystemExit(f"compare {a} {b}: {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)


def first_op(report):
    return next((finding for finding in report["findings"] if finding["code"] == "compare.first_op"), None)


def templates(value):
    """The ids of all templates in a title."""
    if isinstance(value, dict):
        yield from ([value["id"]] if "id" in value else [])
        for each in value.values():
            yield from templates(each)
    elif isinstance(value, list):
        for each in value:
            yield from templates(each)


def problem_of_planted(pair, report):
    found = first_op(report)
    if found is None:
        return "nothing is said to differ"
    key = found["evidence"][0]["key"]
    place = f"{key.get('module', '')} {key.get('op_name', '')}".strip()
    if pair.output not in place:
        return f"{place} is named; expected {pair.output}"
    if key["step"] != pair.step:
        return f"step {key['step']}; expected {pair.step}"
    said = set(templates(found["title_sentences"]))
    if missing := [each for each in pair.says if each not in said]:
        return f"not said: {', '.join(missing)}: {found['title']}"
    return None


def problem_of_rounding(report):
    found = first_op(report)
    if found is None:
        return None
    said = set(templates(found["title_sentences"]))
    accused = said & {"compare.first_op.beyond_rounding", "compare.first_op.changed", "compare.first_op.given", "compare.first_op.memory"}
    return f"accused: {found['title']}" if accused else None


def problem_of_equal(report):
    found = first_op(report)
    return found and f"nothing differs, and this is said: {found['title']}"


def problem_of_resumed(runs):
    """A run that went on from a checkpoint, beside one that was not interrupted."""
    whole, part, rest, checkpoint = (runs.folder / name for name in ("whole.h5", "part.h5", "rest.h5", "part.ckpt"))
    runs.train("block", ("training.steps=6", "precision=fp16"), whole)
    runs.train("block", ("training.steps=3", "precision=fp16", f"--checkpoint {checkpoint}"), part)
    command = [runs.program, "train", "--resume", str(checkpoint), "--steps", "6", "--record", "stats,bits", "-o", str(rest)]
    subprocess.run(command, capture_output=True, check=True)
    return problem_of_equal(runs.compare_traces(whole, rest))


def main():
    program, names = sys.argv[1], sys.argv[2:]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(program, folder)
        for kind, some, problem_of in (("planted", pairs.PLANTED, problem_of_planted),
                                       ("equal", pairs.EQUAL, lambda pair, report: problem_of_equal(report)),
                                       ("rounding", pairs.ROUNDING, lambda pair, report: problem_of_rounding(report))):
            for pair in some:
                if names and pair.name not in names:
                    continue
                report = runs.compare(pair)
                problem = problem_of(pair, report)
                failures += problem is not None
                if problem or names:
                    found = first_op(report)
                    print(f"{kind} {pair.name}: {problem or 'as expected'}: {found['title'] if found else 'equal'}")
        if not names and (problem := problem_of_resumed(runs)):
            failures += 1
            print(f"resumed: {problem}")
        print(f"{len(pairs.PLANTED)} planted, {len(pairs.ROUNDING)} by rounding, {failures} not as expected")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
