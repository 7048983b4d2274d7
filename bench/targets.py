"""The one list of performance targets. Each compares measurements of one round, so that ratios are of the same minute and machine.

A measurement's name is "ours/WORKLOAD/PRECISION/LEVEL" or "torch/WORKLOAD/PRECISION" (milliseconds a step), "trace/FIGURE",
"gui/TENSORS/FIGURE", "causes/FIGURE", or "PROGRAM/BENCHMARK" (nanoseconds a call) for the Google Benchmark programs.
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


# On a CPU PyTorch's FP16 step of these takes seconds (resnet20) or does not exist (its LSTM).
FP32_ONLY = ("resnet20", "lstm_text")


def step_targets(workload):
    def ours(m, precision="fp32", level="off"):
        return m[f"ours/{workload}/{precision}/{level}"]

    def torch(m, precision="fp32"):
        return m[f"torch/{workload}/{precision}"]

    if workload in FP32_ONLY:
        return [at_most(f"{workload}: FP32 / PyTorch FP32", lambda m: ours(m) / torch(m), 1.0)]
    # A step under a millisecond leaves the recorder, its writer thread and calls for casts little to hide behind.
    stats, health, fp16, bf16 = (0.50, 0.25, 1.25, 1.25) if workload == "mlp" else (0.12, 0.05, 1.3, 1.2)
    targets = [
        at_most(f"{workload}: FP32 / PyTorch FP32", lambda m: ours(m) / torch(m), 0.5 if workload == "fashion_cnn" else 0.8),
        at_most(f"{workload}: FP16 / our FP32", lambda m: ours(m, "fp16") / ours(m), fp16),
        at_most(f"{workload}: FP16 / PyTorch FP16", lambda m: ours(m, "fp16") / torch(m, "fp16"), 0.2),
        at_most(f"{workload}: BF16 / our FP32", lambda m: ours(m, "bf16") / ours(m), bf16),
    ]
    for precision in ("fp32", "fp16"):
        def added(m, level, precision=precision):
            bare = ours(m, precision)
            return (ours(m, precision, level) - bare) / bare

        name = precision.upper()
        targets += [
            at_most(f"{workload}: {name}, level stats adds / bare", lambda m, added=added: added(m, "stats"), stats),
            at_most(f"{workload}: {name}, level health adds / bare", lambda m, added=added: added(m, "health"), health),
        ]
    return targets


def rounding_targets():
    """One thread; large arrays are beyond every cache."""
    def speed(what, peer, name, limit, size="large"):
        return at_least(what, lambda m: m[f"rounding/{peer}/{size}"] / m[f"rounding/{name}/{size}"], limit)

    result = []
    for form, in_cache in (("fp16", 0.18), ("bf16", 0.35)):
        name = form.upper()
        result += [
            speed(f"round to {name}, rne / an in-place copy", "in_place_copy", f"in_place/{form}/rne", 0.95),
            speed(f"round to {name}, rne / an in-place copy, in cache", "in_place_copy", f"in_place/{form}/rne", 0.8, "in_cache"),
            speed(f"round to {name}, sr, encodings / a copy", "memcpy", f"encodings/{form}/sr", 0.85),
            speed(f"round to {name}, sr, encodings / a copy, in cache", "memcpy", f"encodings/{form}/sr", in_cache, "in_cache"),
        ]
    for form in ("fp16", "bf16", "e4m3", "e5m2"):
        for mode in ("rne", "rna", "rz", "ru", "rd", "ro", "sr"):
            if form.startswith("e") or mode not in ("rne", "sr"):
                result.append(speed(f"round to {form.upper()}, {mode} / an in-place copy", "in_place_copy", f"in_place/{form}/{mode}", 0.7))
    result.append(speed("round to e6m9, rne / an in-place copy", "in_place_copy", "in_place/e6m9:bias=31/rne", 0.5))
    for form in ("mxfp8_e4m3", "nvfp4"):
        result.append(speed(f"quantize to {form} / a copy", "memcpy", f"blocks/{form}", 0.5))
    return result


def tensor_core_targets():
    """Sums in FP32 beside the plain twin: the scalar dot product of 512 elements, a matrix product of 512 x 512 x 512."""
    def product(m, name):
        return m[f"tensor_core/tensor_core_product/{name}/real_time"]

    return [
        *[at_least(f"tensor-core product, {gpu} / its plain twin",
                   lambda m, gpu=gpu: m[f"tensor_core/tensor_core_dot/{gpu}"] * 512**2 / product(m, gpu), limit)
          for gpu, limit in (("h100", 80), ("a100", 50), ("nvfp4", 80))],
        at_least("tensor-core product, h100: two threads / one", lambda m: product(m, "h100") / product(m, "h100_2_threads"), 1.9),
    ]


def exact_targets():
    elements = 1 << 12  # in cache
    return [at_least(f"exact dot product, {form.upper()}, G multiply-adds/s", lambda m, form=form: elements / m[f"exact/exact_dot_{form}/{elements}"],
                     limit) for form, limit in (("f16", 0.3), ("f32", 0.05))] + [
        at_least(f"exact matrix product of 128 terms, {form.upper()}, G multiply-adds/s",
                 lambda m, form=form: 256 * 256 * 128 / m[f"exact/exact_product_{form}/128"], limit) for form, limit in (("f16", 1), ("f32", 0.5))]


GUI_TENSORS = (60, 2000)  # a step, of the traces that windows are measured on
GUI_VIEWS = ("overview", "ranges", "timeline", "why-nan", "step", "updates", "compare", "number")


def gui_targets(tensors):
    """A trace of 10^6 rows. Frames are those of the slowest view."""
    def figure(name):
        return lambda m: m[f"gui/{tensors}/{name}"]

    def slowest(name):
        return lambda m: max(m[f"gui/{tensors}/{name}/{view}"] for view in GUI_VIEWS)

    where = f"window, 10^6 rows of {tensors} tensors: "
    return [
        at_most(where + "first picture, s", figure("first_picture_seconds"), 0.3),
        at_most(where + "all views ready, s", figure("all_views_seconds"), 2),
        at_most(where + "memory, MB", figure("megabytes"), 250),
        at_most(where + "CPU of a frame at 1080p, slowest view, ms", slowest("frame_ms"), 4),
        at_most(where + "whole frame in software GL at 720p, slowest view, ms", slowest("window_frame_ms"), 33),
        at_most(where + "dragging the loss scale, slowest frame, ms", figure("drag_scale_ms"), 8),
        at_most(where + "dragging the loss scale, what is not on screen, ms", figure("drag_scale_worker_ms"), 200),
        at_most(where + "CPU share of a window that nobody touches", figure("idle_share"), 0),
        at_most(where + "screenshot, s", lambda m: max(m[f"gui/{tensors}/screenshot_seconds/{view}"] for view in ("overview", "ranges")), 3),
        at_most(where + "report as HTML, MB", figure("html_megabytes"), 5),
        at_most(where + "first paint of it in Chromium, s", figure("html_first_paint_seconds"), 1),
    ]


WORKLOADS = ("mlp", "mlp_big", "conv_sine", "fashion_cnn", "resnet20", "gpt_mini", "lstm_text")
# Without targets, and for a GPU: a step takes seconds to minutes on a CPU.
LARGE_WORKLOADS = ("conv_sine_512", "gpt_large")
LARGE = 1 << 24  # elements of the statistics benchmarks
TARGETS = [
    at_most("dispatch: add of two 1-element tensors with gradient, ns", lambda m: m["dispatch/add_of_two_scalars_with_gradient"], 1000),
    at_most("dispatch: 1x8x8 matmul, ns", lambda m: m["dispatch/matmul_1x8x8"], 1500),
    at_least("statistics / a read-only scan, ordinary data",
             lambda m: m["statistics/scan/normal"] / m[f"statistics/collect/normal/{LARGE}"], 0.6),
    at_least("statistics / a read-only scan, all binades", lambda m: m["statistics/scan/normal"] / m[f"statistics/collect/wide/{LARGE}"], 0.3),
    at_most("trace: bytes a tensor row", lambda m: m["trace/bytes_per_row"], 85),
    at_most("trace of 10^6 rows: info, s", lambda m: m["trace/info_seconds"], 0.3),
    at_most("trace of 10^6 rows: report, s", lambda m: m["trace/report_seconds"], 0.7),
    at_most("trace of 10^6 rows: whatif of 4 formats at 25 scales, s", lambda m: m["trace/whatif_seconds"], 3),
    at_most("trace of 10^6 rows: opening with the index, s", lambda m: m["trace/index_seconds"], 0.3),
    at_most("trace of 10^6 rows: resident with the index, MB", lambda m: m["trace/index_megabytes"], 250),
    at_most("trace of 10^6 rows: then one tensor's history with histograms, s", lambda m: m["trace/history_seconds"], 0.01),
    at_most("trace: following 10^4 new rows, s", lambda m: m["trace/follow_seconds"], 0.02),
    at_most("trace of 10^6 rows, NaN from its middle on: following 10^4 new rows and the report, s",
            lambda m: m["trace/follow_failed_report_seconds"], 0.02),
    at_most("a window that follows a run slows it down by", lambda m: m["gui/slow_down"], 0.05),
    *[target for tensors in GUI_TENSORS for target in gui_targets(tensors)],
    *[at_most(f"{preset}: a recorded step while those before it are kept / one", lambda m, preset=preset: m[f"causes/ring/{preset}"], 1.05)
      for preset in ("mlp", "gpt_mini")],
    at_most("trace of 10^6 rows: nan --no-trials, s", lambda m: m["causes/nan_seconds"], 3),
    at_most("trace of 10^6 rows: nan --no-trials, MB", lambda m: m["causes/nan_megabytes"], 500),
    at_most("the smallest part of a failing gpt_mini, s", lambda m: m["causes/minimize_seconds"], 60),
    at_most("the smallest part of a failing gpt_mini, samples", lambda m: m["causes/minimize_samples"], 2),
    *rounding_targets(),
    *tensor_core_targets(),
    *exact_targets(),
    *[target for workload in WORKLOADS for target in step_targets(workload)],
]
