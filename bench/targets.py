"""The one list of performance targets. Each compares measurements of one round, so that ratios are of the same minute and machine.

A measurement's name is "ours/WORKLOAD/PRECISION/LEVEL" or "torch/WORKLOAD/PRECISION" (milliseconds a step), or
"PROGRAM/BENCHMARK" (nanoseconds a call) for the Google Benchmark programs.
"""

import dataclasses
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Target:
    what: str
    value: Callable  # measurements of a round -> measured ratio or time
    limit: Callable  # measurements of a round -> the limit
    at_least: bool = False  # else: at most


def at_most(what, value, limit):
    return Target(what, value, limit if callable(limit) else lambda m: limit)


def at_least(what, value, limit):
    return Target(what, value, lambda m: limit, at_least=True)


def step_targets(workload):
    def ours(m, precision="fp32", level="off"):
        return m[f"ours/{workload}/{precision}/{level}"]

    def torch(m, precision="fp32"):
        return m[f"torch/{workload}/{precision}"]

    # A step under a millisecond leaves the recorder and its writer thread little to hide behind.
    of_bare, of_torch = (0.40, 0.35) if workload == "mlp" else (0.10, 0.08)
    targets = [
        at_most(f"{workload}: FP32 / PyTorch FP32", lambda m: ours(m) / torch(m), 0.5 if workload == "fashion_cnn" else 0.8),
        at_most(f"{workload}: FP16 / our FP32", lambda m: ours(m, "fp16") / ours(m), 1.3),
        at_most(f"{workload}: FP16 / PyTorch FP16", lambda m: ours(m, "fp16") / torch(m, "fp16"), 0.2),
        at_most(f"{workload}: BF16 / our FP32", lambda m: ours(m, "bf16") / ours(m), 1.2),
    ]
    for precision in ("fp32", "fp16"):
        def added(m, level, precision=precision):
            bare = ours(m, precision)
            return (ours(m, precision, level) - bare) / bare

        def stats_limit(m, precision=precision):
            return max(of_bare, of_torch * torch(m) / ours(m, precision))

        name = precision.upper()
        targets += [
            at_most(f"{workload}: {name}, level stats adds / bare", lambda m, added=added: added(m, "stats"), stats_limit),
            at_most(f"{workload}: {name}, level health adds / bare", lambda m, added=added: added(m, "health"), 0.03),
        ]
    return targets


WORKLOADS = ("mlp", "mlp_big", "conv_sine", "fashion_cnn")
TARGETS = [target for workload in WORKLOADS for target in step_targets(workload)]
