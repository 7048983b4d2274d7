#!/usr/bin/env python3
"""What `./dev bench` runs: the Google Benchmark programs and the comparison with PyTorch; then the table of targets.

usage: run.py [NAME]... [--compare OLD.json] [-o FILE] [--threads N] [--rounds N] [--seconds S] [--build FOLDER]
NAME is a benchmark program without its _bench ("dispatch", "trace", "gui"), "causes" (capsules, nan, minimize), "emulation" (all programs of that folder), "steps" (training steps
beside PyTorch's), or a workload of those ("mlp"). Without a name: all but the workloads that are for GPUs ("gpt_large"). Results go to FILE (build/bench.json), and --compare prints them beside those of an earlier file.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import compare_torch
import measure_causes
import measure_gui
import targets

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def table(rows, header):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))))
    print(flush=True)


def run_program(program, rounds):
    """Yields (name, nanoseconds, counters) for each repetition of each benchmark of a Google Benchmark program."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([program, f"--benchmark_out={out.name}", "--benchmark_out_format=json", f"--benchmark_repetitions={rounds}",
                        "--benchmark_min_time=0.05", "--benchmark_enable_random_interleaving=true", "--benchmark_display_aggregates_only=true"],
                       check=True, stdout=subprocess.DEVNULL)
        results = json.load(open(out.name))["benchmarks"]
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    prefix = program.name.removesuffix("_bench")
    for row in results:
        if row["run_type"] == "iteration":
            yield f"{prefix}/{row['run_name']}", row["real_time"] * scale[row["time_unit"]], row["repetition_index"]


def run_trace(build):
    """Figures of a trace of 10^6 tensor rows: what trace_bench prints of writing it, and the time that info, report and
    whatif take."""
    with tempfile.TemporaryDirectory(prefix="ulpscope_bench_") as folder:
        trace = pathlib.Path(folder) / "rows.h5"
        printed = subprocess.run([build / "bench/trace_bench", "1000000", "--json", "--keep", trace],
                                 check=True, capture_output=True, text=True).stdout
        figures = {f"trace/{name}": value for name, value in json.loads(printed).items()}
        for verb, *asked in (["info"], ["report"], ["whatif", "--format", "fp16,bf16,e4m3,e5m2", "--scale", "2^0..2^24"]):
            start = time.perf_counter()
            subprocess.run([build / "bin/ulpscope", verb, trace, *asked], check=True, stdout=subprocess.DEVNULL)
            figures[f"trace/{verb}_seconds"] = time.perf_counter() - start
    return figures


class Results:
    """Measurements by name, a value for each round, and what else was said of them."""

    def __init__(self):
        self.rounds, self.details = {}, {}

    def add(self, name, turn, value, details=None):
        self.rounds.setdefault(turn, {})[name] = value
        if details:
            self.details[name] = details

    def medians(self):
        names = dict.fromkeys(name for values in self.rounds.values() for name in values)
        return {name: statistics.median(values[name] for values in self.rounds.values() if name in values) for name in names}

    def judge(self, target):
        """(value, limit, met), medians over the rounds; or None where it was not measured."""
        judged = []
        for values in self.rounds.values():
            try:
                judged.append((target.value(values), target.limit(values)))
            except KeyError:
                pass
        if not judged:
            return None
        value, limit = (statistics.median(column) for column in zip(*judged))
        return value, limit, value >= limit if target.at_least else value <= limit


def is_step(name):
    return name.startswith(("ours/", "torch/"))


def print_results(results, is_whole):
    medians = results.medians()
    others = [name for name in medians if not is_step(name)]
    if others:
        table([(name, f"{medians[name]:.4g}" + ("" if name.startswith(("trace/", "gui/", "causes/")) else " ns")) for name in others], ("benchmark", "measured"))
    steps = []
    for name in medians:
        if not name.startswith("ours/"):
            continue
        _, workload, precision, level = name.split("/")
        torch = medians.get(f"torch/{workload}/{precision}")
        bare = medians.get(f"ours/{workload}/{precision}/off")
        details = results.details.get(name, {})
        writer = details.get("writer_us_per_row")
        steps.append((f"{workload} {precision} {level}", f"{medians[name]:.3f}", f"{torch:.3f}" if torch else "-",
                      f"{medians[name] / torch:.2f}" if torch else "-", f"{medians[name] / bare:.3f}" if bare else "-",
                      f"{writer:.2f}" if writer is not None else "-"))
    if steps:
        table(steps, ("training step", "ms", "PyTorch ms", "ratio", "/ bare", "writer us/row"))
    judged, unknown = [], []
    for target in targets.TARGETS:
        result = results.judge(target)
        if result is None:
            unknown.append(target.what)
        else:
            value, limit, met = result
            judged.append({"what": target.what, "value": value, "limit": limit, "met": met, "at_least": target.at_least})
    if judged:
        table([(row["what"], f"{row['value']:.3g}", ("at least " if row["at_least"] else "at most ") + f"{row['limit']:.3g}",
                "met" if row["met"] else "MISSED") for row in judged], ("target", "measured", "limit", ""))
        print(f"{sum(row['met'] for row in judged)} of {len(judged)} targets met")
    if is_whole and unknown:
        print("not measured: " + "; ".join(unknown))
    return judged


def print_comparison(old_file, medians):
    old = json.loads(pathlib.Path(old_file).read_text())["measurements"]
    rows = [(name, f"{old[name]:.4g}", f"{value:.4g}", f"{value / old[name]:.3f}") for name, value in medians.items() if old.get(name)]
    if rows:
        table(rows, ("measurement", "then", "now", "now / then"))
    else:
        print(f"{old_file} has none of these measurements")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compare", metavar="OLD.json")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "build/bench.json")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--check", action="store_true", help="look at the arguments alone, before anything is built")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)

    programs = {path.name.removesuffix("_bench"): path for path in sorted((options.build / "bench").glob("*_bench"))}
    step_bench, trace_bench, gui_bench = (programs.pop(name, None) for name in ("step", "trace", "gui"))
    programs.pop("device", None)  # of GPUs: scripts/gpu.py runs it
    names = sorted(path.stem.removesuffix("_bench") for path in (ROOT / "bench").glob("*_bench.cpp"))
    known = [*(name for name in names if name not in ("step", "trace", "gui", "device")), "emulation", "trace", "gui", "causes", "steps", *targets.WORKLOADS, *targets.LARGE_WORKLOADS]
    for name in options.names:
        if name not in known:
            print(f"no benchmark '{name}': there are {', '.join(known)}", file=sys.stderr)
            return 2
    if options.compare and not pathlib.Path(options.compare).exists():
        print(f"no file '{options.compare}' to compare with", file=sys.stderr)
        return 3
    if options.check:
        return 0

    if "emulation" in options.names:
        options.names += ["rounding", "exact", "tensor_core"]

    results = Results()
    for name, program in programs.items():
        if name in options.names or not options.names:
            print(f"running {name}", file=sys.stderr, flush=True)
            for benchmark, nanoseconds, turn in run_program(program, options.rounds):
                results.add(benchmark, turn, nanoseconds)
    if trace_bench and ("trace" in options.names or not options.names):
        print("running trace", file=sys.stderr, flush=True)
        for turn in range(options.rounds):
            for name, value in run_trace(options.build).items():
                results.add(name, turn, value)
    if gui_bench and ("gui" in options.names or not options.names):
        for turn in range(options.rounds):
            for tensors in targets.GUI_TENSORS:
                print(f"running gui, {tensors} tensors a step", file=sys.stderr, flush=True)
                for name, value in measure_gui.measure(options.build, tensors).items():
                    results.add(f"gui/{tensors}/{name}", turn, value)
        if shutil.which("Xvfb"):
            print("running gui, beside a run", file=sys.stderr, flush=True)
            results.add("gui/slow_down", 0, measure_gui.slow_down(options.build, options.rounds))
    if "causes" in options.names or not options.names:
        print("running causes", file=sys.stderr, flush=True)
        for name, value in measure_causes.measure(options.build, options.rounds).items():
            results.add(f"causes/{name}", 0, value)
    are_all = not options.names or "steps" in options.names
    workloads = [name for name in targets.WORKLOADS if are_all or name in options.names]
    workloads += [name for name in targets.LARGE_WORKLOADS if name in options.names]
    if workloads and step_bench:
        if not compare_torch.torch:
            print("PyTorch cannot be imported: training steps are timed alone", file=sys.stderr)
        for workload in workloads:
            print(f"running {workload}", file=sys.stderr, flush=True)
            for row in compare_torch.measure([workload], options.threads, options.rounds, options.seconds, step_bench):
                results.add(row.pop("name"), row.pop("round"), row.pop("ms"), row)

    judged = print_results(results, not options.names)
    medians = results.medians()
    if options.compare:
        print_comparison(options.compare, medians)
    options.output.write_text(json.dumps({
        "machine": cpu_name(), "threads": options.threads, "torch": compare_torch.torch and compare_torch.torch.__version__,
        "measurements": medians, "rounds": results.rounds, "details": results.details, "targets": judged}, indent=1))
    print(f"written: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
