"""Sums over the rows of a trace, as docs/numerics.md and docs/findings.md define them."""

import functools
import math
import types

import numpy

from .beginnings import OF_PARAMETERS, Beginnings, wastes_many
from .fitting import Fitting
from .formats import FLOATS, FORMATS, NARROW, PLAINLY_NARROW, QUANTIZED, flushed_up_to
from .magnitudes import Magnitudes
from .trace import Trace

COMPUTED_GRADIENTS = ("activation_gradient", "weight_gradient")
GRADIENTS = COMPUTED_GRADIENTS + ("accumulated_gradient", "unscaled_gradient")
AFTER_LOSS = ("backward", "scaling", "communication", "optimizer")
KEPT = ("weight", "master_weight", "optimizer_state")
RUNNING_STATISTICS = 3  # of batch_norm, the inputs and outputs from this one on
STUCK = 10  # steps skipped in a row to the end: no scale comes down through so many


class Facts:
    def __init__(self, path):
        self.trace = Trace(path)
        self.tables = self.trace.tables
        self.fitting = Fitting(self)
        self.path = path
        self.run_id = self.trace.text_of(self.trace.run("run_id"))

    # Tensors, by their rows in `tensors`.

    @functools.cached_property
    def tensors(self):
        tensors, ops = self.tables.tensors, self.tables.ops
        op = tensors["op"]
        t = types.SimpleNamespace(
            op=op,
            slot=tensors["slot"],
            n=len(op),
            dtype=tensors.words("dtype"),
            role=tensors.words("role"),
            is_gradient=tensors.is_any("role", *GRADIENTS),
            is_computed=tensors.is_any("role", *COMPUTED_GRADIENTS),
            is_float=tensors.is_any("dtype", *FLOATS),
            is_narrow=tensors.is_any("dtype", *NARROW),
            is_plain=tensors.is_any("dtype", *PLAINLY_NARROW),
            is_quantized=tensors.is_any("dtype", *QUANTIZED),
            stays_wide=tensors["stays_wide"] == 1,
            after_loss=ops.is_any("phase", *AFTER_LOSS)[op],
            phase=[ops.words("phase")[i] for i in op],
            function=[ops.words("function")[i] for i in op],
        )
        t.is_statistic = numpy.array([name == "batch_norm" for name in t.function]) & (t.slot >= RUNNING_STATISTICS)
        t.is_kept = tensors.is_any("role", *KEPT) | t.is_statistic
        t.in_phase = lambda *phases: ops.is_any("phase", *phases)[op]
        return t

    def format_of(self, tensor):
        return FORMATS[self.tensors.dtype[tensor]]

    def rounding_of(self, tensor, dtype=None):
        """(mode, whether subnormals are flushed) in its own type, or another one."""
        table = self.tables.tensors
        dtype = dtype or self.tensors.dtype[tensor]
        flushes = table["flushes_results"][tensor] == 1 or (
            table["flushes_narrow_products"][tensor] == 1 and table["slot"][tensor] == 0 and dtype in PLAINLY_NARROW
        )
        return table.words("rounding")[tensor], bool(flushes)

    def flushed_up_to(self, tensor):
        return flushed_up_to(self.format_of(tensor), *self.rounding_of(tensor))

    # Steps.

    @functools.cached_property
    def steps(self):
        table = self.tables.steps
        s = types.SimpleNamespace(
            **{name: table[name] for name in ("step", "loss", "learning_rate", "scale_before", "scale_after", "graph")},
            known=table["loss_known"] == 1,
            skipped=table["skipped"] == 1
        )
        s.n = len(s.step)
        s.nonfinite = s.known & ~numpy.isfinite(s.loss)
        finite = numpy.flatnonzero(~s.nonfinite)
        # From where on every loss is NaN or infinite.
        s.first_broken = 0 if finite.size == 0 else int(finite[-1]) + 1
        # A run that got over such steps before, and whose last one alone was skipped for it, goes on.
        got_over = bool(s.nonfinite[: s.first_broken].any())
        if got_over and s.first_broken == s.n - 1 and s.skipped[-1]:
            s.first_broken = s.n
        s.broken = numpy.arange(s.n) >= s.first_broken
        s.is_broken = bool(s.broken.any())
        s.broken_from = int(s.step[s.first_broken]) if s.is_broken else None
        s.fitted = s.known & (s.loss >= 0) & (s.loss <= self.fitted_loss(s))
        s.last_bout = self.last_bout(s.step[s.nonfinite].tolist()) if s.is_broken else None
        return s

    def fitted_loss(self, s):
        """Up to which a loss is nothing beside the first one, or beside 1 where that is more; NaN: none is."""
        phases = self.trace.tables.ops.words("phase")
        is_narrow = any(
            self.tensors.role[i] == "loss" and phases[self.tensors.op[i]] == "loss" and self.tensors.is_narrow[i]
            for i in range(self.tensors.n)
        )
        first = float(s.loss[0]) if s.n and s.known[0] else math.nan
        return math.nan if is_narrow or not 0 < first < math.inf else 2.0**-24 * min(first, 1.0)

    @staticmethod
    def last_bout(steps):
        """Where the last of these steps' stretches began, and with it those before that a gap no longer than themselves divides from it."""
        starts = [i for i in range(len(steps)) if i == 0 or steps[i] != steps[i - 1] + 1] + [len(steps)]
        begin = len(starts) - 2
        while begin > 0 and steps[starts[begin]] - steps[starts[begin] - 1] - 1 <= starts[begin] - starts[begin - 1]:
            begin -= 1
        return steps[starts[begin]]

    def trailing_skips(self):
        taken = numpy.flatnonzero(~self.steps.skipped)
        return self.steps.n - (int(taken[-1]) + 1 if taken.size else 0)

    def leading_skips(self):
        taken = numpy.flatnonzero(~self.steps.skipped)
        return int(taken[0]) if taken.size else self.steps.n

    @property
    def is_stuck(self):
        s, skips = self.steps, self.trailing_skips()
        growth = s.n - skips - 1  # the step before
        takes_growth_back = (
            skips > 0 and growth >= 0 and s.scale_after[growth] > s.scale_before[growth] and s.scale_after[-1] > s.scale_before[growth]
        )
        return skips >= STUCK and not takes_growth_back

    # Rows of stats.

    @functools.cached_property
    def rows(self):
        s, t = self.tables.stats, self.tensors
        tensor = s["tensor"].astype(numpy.int64)
        place = numpy.searchsorted(self.steps.step, s["step"])
        r = types.SimpleNamespace(
            tensor=tensor,
            op=t.op[tensor],
            step=s["step"].astype(numpy.int64),
            n=len(tensor),
            place=place,
            skipped=self.steps.skipped[place],
            judged=~self.steps.broken[place],
        )
        for name in (
            "count",
            "nan",
            "zeros",
            "flushed",
            "subnormal",
            "overflowed",
            "saturated",
            "rescued",
            "input_nonzero",
            "input_flushed",
            "micro_batch",
            "loss_index",
            "sequence",
        ):
            setattr(r, name, s[name].astype(numpy.int64))
        for name in ("smallest", "largest", "sum_of_squares", "scale", "quantization_scale"):
            setattr(r, name, s[name])
        infinities = (s["positive_infinity"] + s["negative_infinity"]).astype(numpy.int64)
        r.known = ~s.is_any("known", "none")
        r.has_values = s.is_any("known", "values")
        r.rounding_known, r.before = s["rounding_known"] == 1, s["before_rounding"] == 1
        quantized = t.is_quantized[tensor]
        r.became_infinite = numpy.where(quantized, 0, r.overflowed - r.saturated)
        # As stored: FP8 holds no infinity, and what a rounding made infinite is there beside what was before.
        r.infinite = numpy.where(
            r.before & quantized, 0, infinities + numpy.where(r.before & r.rounding_known, r.became_infinite, 0)
        )
        r.finite_before = r.nan + infinities == 0
        r.nonfinite = numpy.where(r.known, r.nan + r.infinite, 0)
        r.finite_nonzero = r.count - r.nan - infinities - r.zeros
        # Finite and nonzero before the rounding.
        r.base = r.finite_nonzero + numpy.where(~r.before & r.rounding_known, r.flushed + r.became_infinite, 0)
        r.fitted = self.steps.fitted[place]
        # What a gradient lost in a step that was skipped or fitted is lost to nobody.
        r.used = ~((r.skipped | r.fitted) & t.is_gradient[tensor])
        # NaN and infinities that are no part of how a scaler finds its level: gradients of skipped steps.
        r.bad = (r.nonfinite > 0) & ~(r.skipped & t.after_loss[tensor])
        r.is_gradient = t.is_gradient[tensor]
        return r

    def sums(self, name, where):
        """By tensor, over some rows."""
        values = getattr(self.rows, name)
        return numpy.bincount(self.rows.tensor[where], weights=values[where], minlength=self.tensors.n).astype(numpy.int64)

    def share(self, name, where, tensor=None):
        """Of what was finite and nonzero before the rounding, by tensor."""
        where = where & self.rows.known & self.rows.rounding_known
        lost, base = self.sums(name, where), self.sums("base", where)
        shares = numpy.where(base > 0, lost / numpy.maximum(base, 1), 0.0)
        return shares if tensor is None else float(shares[tensor])

    def first_row(self, where):
        """The first in order of execution, or None."""
        found = numpy.flatnonzero(where)
        return int(found[0]) if found.size else None

    def rows_of(self, tensor):
        return self.rows.tensor == tensor

    # NaN and infinities.

    @functools.cached_property
    def nonfinite_tensors(self):
        return numpy.unique(self.rows.tensor[self.rows.nonfinite > 0])

    @functools.cached_property
    def beginnings(self):
        return Beginnings(self)

    @property
    def harms_losses(self):
        """Losses were NaN or infinite in many steps, or in one that was not skipped."""
        s = self.steps
        return wastes_many(int(s.nonfinite.sum()), s.n) or bool((s.nonfinite & ~s.skipped).any())

    @functools.cached_property
    def skipped_for_nan(self):
        """The first row of the first beginning that is NaN only, in many skipped steps, where nothing worse is known; or None."""
        r, parameters = self.rows, self.tables.tensors.is_any("role", *OF_PARAMETERS)
        if (r.bad & parameters[r.tensor]).any() or self.harms_losses:
            return None
        for tensor, rows in sorted(self.beginnings.rows.items(), key=lambda each: each[1][0]):
            nan_only = not r.infinite[rows].any() and not r.became_infinite[rows[0]]
            if nan_only and wastes_many(int(r.skipped[rows].sum()), self.steps.n):
                return rows[0]
        return None

    @functools.cached_property
    def origins(self):
        """The rows where the NaN and infinities began that did harm: got to a loss or a weight of a run that broke, or to a gradient of a
        parameter where no step was taken or steps were wasted, and apart from that those that an op divided by. Where they did none, the
        first."""
        r, s = self.rows, self.steps
        first = self.first_row(r.bad)
        everywhere = ("loss", "weights", "gradients")
        if not s.is_broken and not self.is_stuck and not self.reached_weights and self.skipped_for_nan is not None:
            return [self.skipped_for_nan]
        if s.is_broken:
            kinds, since = ("loss", "weights"), s.last_bout
        elif self.is_stuck:
            taken = numpy.flatnonzero(~s.skipped)
            # A dynamic scale may have skipped steps before and come down to one that fitted.
            adapts = self.trace.run("dynamic_loss_scale")
            kinds, since = everywhere, s.step[taken[-1] + 1] if len(taken) and adapts else 0
        elif self.reached_weights:
            kinds, since = ("weights",), numpy.inf
        else:
            kinds, since = (*everywhere, "divided_by"), 0
        kinds_apart = [[kind for kind in kinds if kind != "divided_by"], [kind for kind in kinds if kind == "divided_by"]]
        if "divided_by" in kinds and self.harms_losses:
            kinds_apart.append(["loss"])
        origins = {self.beginnings.origin(each, since) for each in kinds_apart if each} - {None}
        return sorted(origins) or ([] if first is None else [first])

    @property
    def origin(self):
        return self.origins[0] if self.origins else None

    @property
    def reached_weights(self):
        return bool((self.rows.bad & self.tensors.is_kept[self.rows.tensor]).any())

    # What flushing took of a norm.

    @functools.cached_property
    def flushed_norm(self):
        """Of every row at most this share of its norm: what lies in a bin below the threshold was flushed, and is at most the bin's upper
        edge, the rest at most the threshold."""
        r = self.rows
        up_to = numpy.array([self.flushed_up_to(i) if self.tensors.is_narrow[i] else (0.0, 0.0) for i in range(self.tensors.n)])
        bounds = numpy.zeros(r.n)
        rows = numpy.flatnonzero((r.flushed > 0) & r.rounding_known)
        all_to, some_to = up_to[r.tensor[rows]].T
        upper_edges = numpy.ldexp(1.0, numpy.arange(-126, 129))
        is_below = (upper_edges <= all_to[:, None]) & (r.has_values & r.before)[rows, None]
        below = numpy.where(is_below, self.trace.histograms[rows], 0)
        rest = r.flushed[rows] - below.sum(axis=1)
        lost, norm = numpy.sqrt(below @ upper_edges**2 + rest * some_to**2), numpy.sqrt(r.sum_of_squares[rows])
        bounds[rows] = numpy.where(lost < norm, lost / numpy.where(norm > 0, norm, 1.0), 1.0)
        return bounds

    @functools.cached_property
    def felt(self):
        """The rows whose norm may have felt what was flushed."""
        part = numpy.array([fmt.felt if fmt else math.inf for fmt in map(FORMATS.get, self.tensors.dtype)])
        return self.flushed_norm > part[self.rows.tensor]

    def flush_matters(self, tensor, where):
        """Whether it is felt in more than a tenth of the rows."""
        rows = where & self.rows_of(tensor) & self.rows.used & self.rows.rounding_known & (self.rows.base > 0)
        return 10 * int((self.felt & rows).sum()) > int(rows.sum())

    def most_norm(self, tensor, where):
        return float(self.flushed_norm[where & self.rows.used & self.rows_of(tensor)].max(initial=0.0))

    # Gradients of biases.

    def terms_of(self, tensor):
        """The gradient that this one, of a bias, is a sum over; None of any other."""
        t = self.tensors
        slots = {"sum": 0, "convolution_backward_weight": 1, "transposed_convolution_backward_weight": 1}
        if t.role[tensor] != "weight_gradient" or slots.get(t.function[tensor]) != t.slot[tensor]:
            return None
        producer, slot = next((producer, slot) for number, producer, slot in self.trace.inputs_of(t.op[tensor]) if number == 0)
        return self.trace.tensor_of_output[(int(self.tables.ops["id"][producer]), slot)]

    @functools.cached_property
    def noise(self):
        """The rows of gradients of biases that hold nothing but what the terms of their sums were rounded by."""
        r, noise = self.rows, numpy.zeros(self.rows.n, bool)
        for tensor in numpy.unique(r.tensor):
            terms = self.terms_of(tensor)
            if terms is None:
                continue
            mine, summed = numpy.flatnonzero(self.rows_of(tensor) & r.has_values), numpy.flatnonzero(self.rows_of(terms) & r.known)
            newest = numpy.searchsorted(summed, mine) - 1
            mine, summed = mine[newest >= 0], summed[newest[newest >= 0]]
            told = (r.step[mine] == r.step[summed]) & r.has_values[summed] & (r.count[mine] > 0)
            mine, summed = mine[told], summed[told]
            u, of_term = 2.0**-24, math.ldexp(0.5, -self.format_of(terms).fraction_bits)
            k = r.count[summed] / r.count[mine]
            noise[mine] = r.largest[mine] <= (of_term + k * u / (1 - k * u)) * numpy.sqrt(k * r.sum_of_squares[summed])
        return noise

    # Backward passes.

    @functools.cached_property
    def first_roundings(self):
        """The first rows of backward passes that hold a rounding of something."""
        r, t = self.rows, self.tensors
        rounded = numpy.flatnonzero(
            t.in_phase("backward")[r.tensor] & t.is_plain[r.tensor] & r.known & r.rounding_known & (r.base > 0)
        )
        passes, found = set(), []
        for row in rounded:
            key = (r.step[row], r.micro_batch[row], r.loss_index[row])
            if key not in passes:
                passes.add(key)
                found.append(row)
        return numpy.array(found, numpy.int64)

    # Counting elements by magnitude.

    def up_to(self, rows, thresholds):
        """(at least, at most) how many finite nonzero elements of each of these rows have a magnitude up to its threshold."""
        return Magnitudes(self, rows).up_to(thresholds)

    # What went on beside.

    def events(self, *kinds):
        """Their rows."""
        return numpy.flatnonzero(self.tables.events.is_any("kind", *kinds))

    def metric(self, name):
        """The last value of it, or None."""
        found = [i for i in self.events("metric") if self.trace.text_of(self.tables.events["text"][i]) == name]
        return float(self.tables.events["value"][found[-1]]) if found else None

    def setting(self, name):
        return self.trace.settings.get(name)


def median(values):
    """With NaN as bad as can be."""
    return float(numpy.median([math.inf if math.isnan(value) else value for value in values]))
