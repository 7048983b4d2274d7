"""The tables and plots of reports: one function for each column, of the case and of what a row is about."""

import math

import numpy

from .fitting import NONE_ABOVE, NONE_BELOW
from .formats import FORMATS
from .scale_rules import scale_bounds
from .sentences import BIN_0


def ratio(count, base):
    return count / base if base else None


# The ranges of tensors.


class Ranges:
    """Sums over all rows of every tensor."""

    def __init__(self, f):
        r, every = f.rows, numpy.ones(f.rows.n, bool)
        self.f = f
        self.rows = numpy.bincount(r.tensor, minlength=f.tensors.n)
        for name in ("count", "zeros", "nonfinite"):
            setattr(self, name, f.sums(name, every & r.known))
        seen = r.known & r.rounding_known
        self.seen = numpy.bincount(r.tensor[seen], minlength=f.tensors.n)
        for name in ("base", "flushed", "subnormal", "overflowed", "rescued"):
            setattr(self, name, f.sums(name, seen))
        self.scaled = numpy.bincount(r.tensor[r.scale != 1], minlength=f.tensors.n) > 0
        self.largest, self.unscaled = numpy.zeros(f.tensors.n), numpy.zeros(f.tensors.n)
        valued = r.has_values
        numpy.maximum.at(self.largest, r.tensor[valued], r.largest[valued])
        numpy.maximum.at(self.unscaled, r.tensor[valued], (r.largest / (r.scale * r.quantization_scale))[valued])

    def share(self, name, tensor):
        return ratio(int(getattr(self, name)[tensor]), int(self.base[tensor])) if self.seen[tensor] else None

    def headroom(self, tensor):
        largest = float(self.largest[tensor])
        return math.log2(self.f.format_of(tensor).largest / largest) if largest > 0 else None


def ranges(case):
    return case.once(Ranges, lambda: Ranges(case.f))


RECORDED = {
    "type": lambda case, tensor, _: case.f.tensors.dtype[tensor],
    "rows": lambda case, tensor, _: int(ranges(case).rows[tensor]),
    "nonfinite": lambda case, tensor, _: int(ranges(case).nonfinite[tensor]),
    "zero": lambda case, tensor, _: ratio(int(ranges(case).zeros[tensor]), int(ranges(case).count[tensor])),
    "flushed": lambda case, tensor, _: ranges(case).share("flushed", tensor),
    "subnormal": lambda case, tensor, _: ranges(case).share("subnormal", tensor),
    "overflow": lambda case, tensor, _: ranges(case).share("overflowed", tensor),
    "rescued": lambda case, tensor, _: ranges(case).share("rescued", tensor) if ranges(case).scaled[tensor] else None,
    "headroom": lambda case, tensor, _: ranges(case).headroom(tensor),
}


# FP8 over the run.


def quantized(case):
    return [i for i in floats(case) if case.f.tensors.is_quantized[i]]


def extreme_of_rows(values_of, extreme):
    """Over the rows of a tensor that hold something else than zeros."""

    def cell(case, tensor, _):
        r = case.f.rows
        return float(extreme(values_of(r)[case.f.rows_of(tensor) & r.has_values & (r.largest > 0)]))

    return cell


def amax(rows):
    return rows.largest / rows.quantization_scale


def scale_of_rows(extreme):
    return lambda case, tensor, _: float(extreme(case.f.rows.quantization_scale[case.f.rows_of(tensor) & case.f.rows.has_values]))


QUANTIZATION = {
    "type": RECORDED["type"],
    "smallest_amax": extreme_of_rows(amax, numpy.min),
    "largest_amax": extreme_of_rows(amax, numpy.max),
    "smallest_scale": scale_of_rows(numpy.min),
    "largest_scale": scale_of_rows(numpy.max),
}


# Changes of the loss scale.


def change(case, row):
    """The step of a row, as its place."""
    return int(numpy.searchsorted(case.f.steps.step, row["values"]["step"]))


def changed(case):
    s = case.f.steps
    return s.skipped | (s.scale_before != s.scale_after)


def kind(case, _, row):
    s, i = case.f.steps, change(case, row)
    return "backoff" if s.scale_after[i] < s.scale_before[i] else "growth" if s.scale_after[i] > s.scale_before[i] else "skip"


def clean_steps(case, _, row):
    i = change(case, row)
    before = numpy.flatnonzero(changed(case)[:i])
    return i - (int(before[-1]) + 1 if before.size else 0)


def first_nonfinite(case, row):
    i = change(case, row)
    return case.f.first_row((case.f.rows.place == i) & (case.f.rows.nonfinite > 0)) if case.f.steps.skipped[i] else None


def is_of_first(case, tensor, row):
    """Its name, where the named tensor is the first of the step with NaN or infinity."""
    first, r = first_nonfinite(case, row), case.f.rows
    if first is None or r.tensor[first] != tensor:
        return None
    is_row = all(row["key"][name] == getattr(r, name)[first] for name in ("micro_batch", "loss_index"))
    return row["values"]["nonfinite_tensor"] if is_row else None


def nonfinite_of_first(case, _, row):
    first = first_nonfinite(case, row)
    return None if first is None else int(case.f.rows.nonfinite[first])


CHANGES = {
    "step": lambda case, _, row: row["key"]["step"] if changed(case)[change(case, row)] else None,
    "kind": kind,
    "before": lambda case, _, row: float(case.f.steps.scale_before[change(case, row)]),
    "after": lambda case, _, row: float(case.f.steps.scale_after[change(case, row)]),
    "clean_steps_before": clean_steps,
    "nonfinite_tensor": is_of_first,
    "nonfinite": nonfinite_of_first,
}


# Fitting scales.


def fit(bounds, loose=False):
    return None if bounds is None or bounds == (NONE_BELOW, NONE_ABOVE) else scale_bounds(bounds, loose)


FITS = {
    "type": lambda case, tensor, _: case.f.tensors.dtype[tensor],
    "largest": lambda case, tensor, _: fit(case.fitting.largest_over(case.f.rows_of(tensor))),
    "smallest": lambda case, tensor, _: fit(case.fitting.smallest_of(tensor), case.fitting.is_loose),
}


def with_fits(case):
    return [i for i in case.fitting.tensors if case.fitting.largest_over(case.f.rows_of(i)) or case.fitting.smallest_of(i)]


def floats(case):
    return [i for i in numpy.unique(case.f.rows.tensor) if case.f.tensors.is_float[i]]


# By analysis and table: the columns, and how many rows there are.
TABLES = {
    ("ranges", "recorded"): (RECORDED, lambda case: len(floats(case))),
    ("ranges", "quantization"): (QUANTIZATION, lambda case: len(quantized(case))),
    ("scale", "changes"): (CHANGES, lambda case: int(changed(case).sum())),
    ("scale", "fitting_scales"): (FITS, lambda case: len(with_fits(case))),
}


# Plots.


def exponents(case, tensor, plot):
    """{exponent: elements} of the values without their quantization scale, without rows whose scale is no power of two; in a plot of an
    FP8 type, of the values at that scale."""
    f, total = case.f, {}
    rows = numpy.flatnonzero(f.rows_of(tensor) & f.rows.has_values)
    scales = f.rows.quantization_scale[rows] if format_of_plot(plot) == "f16" else numpy.ones(len(rows))
    mantissas, powers = numpy.frexp(scales)
    for power in numpy.unique(powers[mantissas == 0.5]):
        bins = f.trace.histograms[rows[(mantissas == 0.5) & (powers == power)]].sum(axis=0)
        for bin_of in numpy.flatnonzero(bins):
            exponent = int(bin_of) - 127 - int(power - 1)
            total[exponent] = total.get(exponent, 0) + int(bins[bin_of])
    return total


def check_histogram(case, plot, series):
    tensor = case.tensor_of(series)
    told = dict(zip(series["x"], series["y"]))
    if told != exponents(case, tensor, plot):
        yield f"plot of {series['name']}: {told}, recomputed {exponents(case, tensor, plot)}"
    if (series["below"], series["above"]) != (0, 0):  # of FP64 values and scaled subnormals, which no run here has
        yield f"not recomputed: {series['below']} and {series['above']} elements beyond the bins of {series['name']}"


def format_of_plot(plot):
    """The type whose limits it has: FP16, or one of FP8."""
    return plot["name"].removeprefix("exponents_") if plot["name"] in ("exponents_e4m3", "exponents_e5m2") else "f16"


def histograms(case, plot):
    """How many tensors have one that holds anything."""
    dtype = format_of_plot(plot)
    of = [i for i in floats(case) if dtype == "f16" or case.f.tensors.dtype[i] == dtype]
    return sum(bool(exponents(case, tensor, plot)) for tensor in of)


def check_limits(case, plot):
    """Below these exponents a type has subnormal numbers, which end at half of the smallest; from there on all is beyond it."""
    fmt = FORMATS[format_of_plot(plot)]
    normal, limits = math.frexp(fmt.smallest_normal)[1] - 1, {limit["name"]: limit["exponent"] for limit in plot["limits"]}
    if limits != {"subnormal": normal - fmt.fraction_bits - 1, "normal": normal, "overflow": math.frexp(fmt.largest)[1]}:
        yield f"limits of {fmt.name}: {limits}"
    if case.f.tensors.is_quantized[numpy.unique(case.f.rows.tensor)].any() == (fmt == FORMATS["f16"]):
        yield f"a plot of {fmt.name} is not what the run was rounded to"


def scale_after_each_step(case):
    s = case.f.steps
    points = [(int(s.step[0]), math.log2(s.scale_before[0]))]
    points += [
        (int(step) + 1, math.log2(after)) for step, before, after in zip(s.step, s.scale_before, s.scale_after) if before != after
    ]
    return points


def check_scale_history(case, series):
    """Every change; the last point goes on to the end."""
    told, expected = list(zip(series["x"], series["y"])), scale_after_each_step(case)
    expected.append((max(int(case.f.steps.step[-1]), expected[-1][0]), expected[-1][1]))
    if told != expected or series["key"]["step"] != case.f.steps.step[0]:
        yield f"plot of the loss scale: {told}, recomputed {expected}"


def check_largest_of_steps(case, series):
    """The largest scale that may fit a step, in the steps in which it, or what is known of the smallest, changes."""
    f, upper = case.f, {}
    for step in numpy.unique(f.rows.step[case.fitting.asked_in]):
        bounds = case.fitting.largest_over(f.rows.step == step)
        upper[int(step)] = bounds[1] if bounds else NONE_ABOVE
    for step, exponent in zip(series["x"], series["y"]):
        if upper.get(step) != exponent:
            yield f"plot of {series['name']}: {exponent} in step {step}, recomputed {upper.get(step)}"


def check_smallest_of_steps(case, series):
    """What is known of the smallest scale of a step from below, in the steps in which it, or the largest, changes."""
    lower = case.fitting.smallest_of_steps()
    for step, exponent in zip(series["x"], series["y"]):
        expected = lower.get(step, NONE_BELOW)
        if exponent != expected and not (case.fitting.is_loose and exponent < expected <= exponent + math.log2(BIN_0)):
            yield f"plot of {series['name']}: {exponent} in step {step}, recomputed {expected}"


# Notes of tables.


def makers_of_nonfinite(f):
    """The origin, the first of all, and what became infinite when it was rounded and held none before that."""
    r = f.rows
    made = {int(r.tensor[row]) for row in f.origins}
    first = f.first_row(r.bad)
    if first is not None:
        made.add(int(r.tensor[first]))
    for tensor in {int(i) for i in r.tensor[r.bad]}:
        row = f.first_row(r.bad & f.rows_of(tensor))
        if r.finite_before[row] and r.became_infinite[row] > 0:
            made.add(tensor)
    return made


def bookkeeping(case, match):
    """Rows of weights, losses, buffers and scalars, and of what scaling and the optimizer make, that made no NaN or infinity."""
    t, shapes = case.f.tensors, case.f.trace.shapes
    made_nonfinite = makers_of_nonfinite(case.f)
    rows = [
        i
        for i in floats(case)
        if i not in made_nonfinite
        and (t.phase[i] in ("scaling", "optimizer") or not shapes[i] or t.role[i] in ("weight", "master_weight", "buffer", "loss"))
    ]
    return {"rows": len(rows)}


NOTES = [
    (r"come last: (?P<rows>[\d,]+) rows?\b", bookkeeping),
    (r"Judged: the steps before step (?P<step>\d+), from which on", lambda case, match: {"step": case.f.steps.broken_from}),
]
