"""What it costs to find out why a run failed: keeping the steps before it, `nan` on a long trace, and the smallest part of a capsule."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RING_STEPS = {"mlp": 6000, "gpt_mini": 150}


def with_fault(folder, preset, **fault):
    """The preset's experiment, with a fault that is injected."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in fault.items()]
    path = pathlib.Path(folder) / f"{preset}.toml"
    path.write_text((ROOT / f"experiments/{preset}.toml").read_text() + "\n[[inject]]\n" + "\n".join(lines) + "\nset = inf\n")
    return path


def train(program, experiment, *arguments):
    subprocess.run([program, "train", experiment, "--precision", "fp16", "--set", "training.evaluation=never", "--force", *arguments],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ring(program, folder, preset, rounds):
    """A recorded run whose last steps are kept, over one that is recorded: whole runs, since what is kept is kept between steps."""

    def seconds(*arguments):
        begin = time.perf_counter()
        train(program, preset, "--steps", str(RING_STEPS[preset]), "-o", os.path.join(folder, "ring.h5"), *arguments)
        return time.perf_counter() - begin

    return statistics.median(seconds("--capsule", os.path.join(folder, "never.capsule")) / seconds() for _ in range(rounds))


def nan_of_long_trace(program, folder):
    """Seconds and megabytes of `nan --no-trials` on 10^6 rows: 22,000 steps of mlp."""
    trace = os.path.join(folder, "long.h5")
    train(program, with_fault(folder, "mlp", parameter="0.weight", step=21000), "--steps", "22000", "-o", trace)
    begin = time.perf_counter()
    asked = subprocess.Popen([program, "nan", trace, "--no-trials"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(asked.pid, 0)
    if status != 0:
        raise RuntimeError(f"nan ended with {status}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def smallest_part(program, folder):
    """Seconds of `replay --minimize` on a failing step of gpt_mini, and the samples that are left of its batch."""
    whole = os.path.join(folder, "whole.capsule")
    experiment = with_fault(folder, "gpt_mini", op="linear", module="blocks.2.feed_forward.in", element=777, step=8)
    train(program, experiment, "--steps", "12", "--capsule", whole, "-o", os.path.join(folder, "failing.h5"))
    command = [program, "replay", whole, "--minimize", os.path.join(folder, "part.capsule"), "--force", "--json"]
    begin = time.perf_counter()
    printed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return time.perf_counter() - begin, int(printed["samples"].split(" to ")[1])


def measure(build, rounds):
    program, figures = build / "bin/ulpscope", {}
    with tempfile.TemporaryDirectory(prefix="ulpscope_bench_") as folder:
        for preset in RING_STEPS:
            figures[f"ring/{preset}"] = ring(program, folder, preset, rounds)
        figures["nan_seconds"], figures["nan_megabytes"] = nan_of_long_trace(program, folder)
        figures["minimize_seconds"], figures["minimize_samples"] = smallest_part(program, folder)
    return figures
