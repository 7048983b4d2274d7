#!/usr/bin/env python3
"""Counts what reports find in runs that lose nothing: how often each rule is wrong.

usage: false_alarms.py ULPSCOPE [--runs N] [--seed S]
Each run is a preset with settings drawn at random, all within what people use, and is trained twice, from the same weights on the same batches:
as it is, and in FP32. It counts as healthy where its losses are finite and the mean of the last is at most 2% above that of the run in FP32, and 5%
below that of the first: no report is asked for that. Of each healthy run every finding above a note is counted by its code. The runs of a seed are
the same each time. Prints a table in Markdown; docs/numerics.md has one.
"""

import argparse
import collections
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

PRESETS = ("mlp", "several_optimizers", "scaler_mlp", "odd_dimensions", "accumulation", "autoencoder")
PRECISIONS = ("fp16", "bf16", "mixed_float16", "mixed_bfloat16", "apex_o1", "apex_o2", "tf_auto_mixed", "fp8", "fp32")
OPTIMIZERS = {"adam": (3e-4, 1e-3), "adamw": (3e-4, 1e-3), "sgd": (0.02, 0.05)}
LAST = 20  # losses
WORSE = 0.02
LEARNS = 0.95  # of the first losses: who learned nothing is not healthy, whatever the reason


def draw(source):
    """The words of `ulpscope train` for one run, and its precision."""
    preset = source.choice(PRESETS)
    words = [preset, "--seed", str(source.randrange(1 << 30)), "--steps", str(source.choice((60, 120, 200)))]
    if preset in ("mlp", "odd_dimensions"):
        optimizer = source.choice(sorted(OPTIMIZERS))
        words += ["--set", f"optimizer.type={optimizer}", "--set", f"optimizer.learning_rate={source.choice(OPTIMIZERS[optimizer])}"]
    if source.random() < 0.3:
        words += ["--set", "clipping.norm=1"]
    return words, source.choice(PRECISIONS)


def losses_of(program, trace):
    rows = subprocess.run([program, "export", trace, "--table", "steps"], capture_output=True, text=True, check=True).stdout.splitlines()
    column = rows[0].split(",").index("loss")
    return [float(row.split(",")[column]) for row in rows[1:]]


def mean(values):
    return math.fsum(values) / len(values)


def is_healthy(losses, reference):
    last = mean(losses[-LAST:])
    return all(map(math.isfinite, losses)) and last <= (1 + WORSE) * mean(reference[-LAST:]) and last < LEARNS * mean(losses[:LAST])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    program, source = str(pathlib.Path(options.program).resolve()), random.Random(options.seed)
    healthy, refused, found = 0, 0, collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        trace, reference = f"{folder}/run.h5", f"{folder}/reference.h5"
        for number in range(options.runs):
            words, precision = draw(source)
            for name, path in ((precision, trace), ("fp32", reference)):
                trained = subprocess.run([program, "train", *words, "--precision", name, "--threads", "1", "-o", path, "--force"], capture_output=True, text=True)
                if trained.returncode != 0:
                    sys.exit(f"{' '.join(words)} in {name}: {trained.stderr.strip().splitlines()[-1]}")
            if not is_healthy(losses_of(program, trace), losses_of(program, reference)):
                refused += 1
                continue
            healthy += 1
            report = json.loads(subprocess.run([program, "report", trace, "--json"], capture_output=True, text=True, check=True).stdout)
            codes = {finding["code"] for finding in report["findings"] if finding["severity"] != "info"}
            found.update(codes)
            for code in sorted(codes):
                print(f"{number}: {code}: ulpscope train {' '.join(words)} --precision {precision}", file=sys.stderr, flush=True)
    print(f"{healthy} healthy runs of {options.runs}; {refused} lose accuracy or do not train, and are not counted.\n")
    print("| finding | healthy runs | per 1,000 |\n|---|---|---|")
    for code, count in found.most_common():
        print(f"| `{code}` | {count} | {1000 * count / healthy:.3g} |")
    if not found:
        print("| none | 0 | 0 |")


if __name__ == "__main__":
    main()
