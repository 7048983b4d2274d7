#!/usr/bin/env python3
"""Times training steps of ours (build/release/bench/step_bench) and of PyTorch, in turns, with the same number of threads.

usage: compare_torch.py [WORKLOAD]... [--threads N] [--rounds N] [--seconds S] [--program FILE]
Prints a JSON line for each measurement: {"round", "name", "ms", ...}. Without PyTorch it says so and times ours alone.

step_bench WORKLOAD --threads N --seconds S prints a line for each precision and recording level, whose steps it interleaves, S seconds each:
{"workload": "mlp", "precision": "fp32", "record": "off", "ms": 0.42, ...}, ms being the median.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import targets

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP_BENCH = ROOT / "build/release/bench/step_bench"

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    torch = None


def workload(name):
    """Model, inputs, targets and loss, as in the presets of ulpscope."""
    labels = lambda batch: torch.randint(0, 10, (batch,))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        return model, torch.randn(32, 128), labels(32), functional.cross_entropy
    if name == "mlp_big":
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, torch.randn(256, 784), labels(256), functional.cross_entropy
    if name == "conv_sine":
        layers, channels = [], 2
        for _ in range(3):
            layers += [nn.Conv2d(channels, 256, 1), nn.BatchNorm2d(256), nn.ReLU()]
            channels = 256
        return nn.Sequential(*layers, nn.Conv2d(256, 1, 1)), torch.rand(1, 2, 128, 128), torch.rand(1, 1, 128, 128), functional.mse_loss
    if name == "fashion_cnn":
        features = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        model = nn.Sequential(*features, nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
        return model, torch.rand(64, 1, 28, 28), labels(64), functional.cross_entropy
    raise SystemExit(f"compare_torch.py: no workload '{name}': there are {', '.join(targets.WORKLOADS)}")


class TorchStep:
    """A training step as PyTorch's own recipe has it: Adam, autocast, and a gradient scaler for FP16."""

    def __init__(self, name, precision):
        torch.manual_seed(0)
        self.model, self.inputs, self.targets, self.loss = workload(name)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        self.scaler = torch.amp.GradScaler("cpu") if precision == "fp16" else None

    def __call__(self):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = self.loss(self.model(self.inputs), self.targets)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()


def median_ms(step, seconds):
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 2:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e3


def measure(names, threads, rounds, seconds, program=STEP_BENCH):
    """Yields {"round", "name", "ms", ...}."""
    if torch:
        torch.set_num_threads(threads)
    for name in names:
        steps = {precision: TorchStep(name, precision) for precision in ("fp32", "fp16", "bf16")} if torch else {}
        for step in steps.values():
            step()
        for turn in range(rounds):
            command = [str(program), name, "--threads", str(threads), "--seconds", str(seconds)]
            for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
                row = json.loads(line)
                yield {"round": turn, "name": f"ours/{row['workload']}/{row['precision']}/{row['record']}", **row}
            for precision, step in steps.items():
                yield {"round": turn, "name": f"torch/{name}/{precision}", "ms": median_ms(step, seconds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--program", default=STEP_BENCH)
    options = parser.parse_args()
    if not torch:
        print("PyTorch cannot be imported: timing ours alone", file=sys.stderr)
    for row in measure(options.workloads or targets.WORKLOADS, options.threads, options.rounds, options.seconds, options.program):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
