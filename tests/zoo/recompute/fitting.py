"""Which loss scales fit, as docs/numerics.md, "What-ifs and fitting scales", defines it: exponents k of scales 2^k, between bounds. What is
behind a gradient of which more than the limit was flushed is no evidence."""

import functools
import math

import numpy

from .formats import FORMATS, LIMIT, beyond_from, flushed_up_to

NONE_BELOW, NONE_ABOVE = -math.inf, math.inf


class Fitting:
    def __init__(self, facts):
        self.f = facts

    @functools.cached_property
    def what_if(self):
        """FP16 where no gradient was rounded to 16 bits: which scale would it need?"""
        t = self.f.tensors
        return None if (t.is_computed & t.is_plain).any() else "f16"

    def dtype_of(self, tensor):
        return self.what_if if self.what_if and self.f.tensors.is_computed[tensor] else self.f.tensors.dtype[tensor]

    @functools.cached_property
    def asked_in(self):
        """The rows that tell something of a loss scale: judged, and rounded to a type of less range than FP32."""
        r, t = self.f.rows, self.f.tensors
        short = numpy.array([self.dtype_of(i) == "f16" for i in range(t.n)])
        computed = t.is_computed & ~t.stays_wide
        accumulated = numpy.array([role == "accumulated_gradient" for role in t.role])
        loss = numpy.array([role == "loss" for role in t.role]) & t.is_narrow
        carries = (computed | accumulated)[r.tensor] | (loss[r.tensor] & (r.scale != 1))
        return carries & short[r.tensor] & t.is_float[r.tensor] & r.judged

    @functools.cached_property
    def lost_too_much(self):
        """Rows of computed gradients of which the rounding flushed more than the limit, or whose op read that much as zero."""
        r, t = self.f.rows, self.f.tensors
        starved = r.input_flushed > LIMIT * r.input_nonzero
        flushed = r.rounding_known & r.known & (r.base > 0) & (r.flushed > LIMIT * r.base) & t.is_narrow[r.tensor]
        return t.is_computed[r.tensor] & (flushed | starved), starved

    @functools.cached_property
    def hidden(self):
        """The rows that are behind such a one, by the edges of their step's graph."""
        f, r, t = self.f, self.f.rows, self.f.tensors
        lost, starved = self.lost_too_much
        hidden = numpy.zeros(r.n, bool)
        backward_op = f.tables.ops.is_any("phase", "backward")
        for place in numpy.unique(r.place[lost]):
            graph, rows = int(f.steps.graph[place]), numpy.flatnonzero(r.place == place)
            newest, memo, current = {}, {}, None
            for row in rows:
                op, key = int(r.op[row]), (r.micro_batch[row], r.loss_index[row])
                if key != current:
                    memo, current = {}, key
                if t.is_computed[r.tensor[row]]:
                    newest[(op, int(t.slot[r.tensor[row]]))] = lost[row]
                hidden[row] = backward_op[op] and (starved[row] or self.behind(graph, op, newest, memo, backward_op))
        return hidden

    def behind(self, graph, op, newest, memo, backward_op):
        if op not in memo:
            memo[op] = False
            memo[op] = any(
                backward_op[producer] and (newest.get((producer, slot)) or self.behind(graph, producer, newest, memo, backward_op))
                for _, producer, slot in sorted(self.f.trace.inputs.get((graph, op), ()))
            )
        return memo[op]

    # The largest scale.

    @functools.cached_property
    def largest_of_rows(self):
        """(lower, upper) exponents of every row that tells; NaN where it does not."""
        f, r = self.f, self.f.rows
        lower, upper = numpy.full(r.n, math.nan), numpy.full(r.n, math.nan)
        rows = numpy.flatnonzero(self.asked_in & ~self.hidden & r.has_values)
        beyond = {i: beyond_from(FORMATS[self.dtype_of(i)], f.rounding_of(i)[0]) for i in numpy.unique(r.tensor[rows])}
        for row in rows:
            some, every = beyond[r.tensor[row]]
            largest, scale = float(r.largest[row]), float(r.scale[row])
            if largest > 0:
                lower[row], upper[row] = shift_below(largest, some * scale), shift_below(largest, every * scale)
            elif r.finite_before[row]:
                continue
            else:
                upper[row] = NONE_ABOVE
            if not r.finite_before[row]:
                exponent = math.frexp(scale)[1] - 1
                lower[row] = NONE_BELOW
                upper[row] = min(upper[row], exponent - 1 if math.frexp(scale)[0] == 0.5 else exponent)
        return lower, upper

    def largest_over(self, where):
        """(lower, upper) over some rows, None where none tells."""
        lower, upper = (values[where & ~numpy.isnan(values)] for values in self.largest_of_rows)
        hidden = bool((self.asked_in & self.hidden & where).any())
        if upper.size == 0:
            return (NONE_BELOW, NONE_ABOVE) if hidden else None
        return (NONE_BELOW if hidden else lower.min(), upper.min())

    # The smallest scale.

    def is_read_as_zero(self, tensor):
        """Whether an op reads its subnormals as zero."""
        f, table = self.f, self.f.tables.tensors
        op, slot = int(f.tensors.op[tensor]), int(table["slot"][tensor])
        readers = {consumer for (_, consumer), read in f.trace.inputs.items() if any(p == op and s == slot for _, p, s in read)}
        half = self.dtype_of(tensor) in ("f16", "bf16")
        return any(
            table["flushes_inputs"][i] == 1 or (half and table["flushes_narrow_products"][i] == 1)
            for i in range(f.tensors.n)
            if int(f.tensors.op[i]) in readers
        )

    def threshold_of(self, tensor):
        mode, flushes = self.f.rounding_of(tensor, self.dtype_of(tensor))
        return flushed_up_to(FORMATS[self.dtype_of(tensor)], mode, flushes or self.is_read_as_zero(tensor))

    @functools.cache
    def smallest_of(self, tensor):
        """(lower, upper) of one tensor over the judged steps: the least exponent at which at most 1% of its nonzero elements are flushed;
        None where its rows do not tell."""
        f, r = self.f, self.f.rows
        mine = self.asked_in & f.rows_of(tensor)
        hidden = bool((mine & self.hidden).any())
        rows = numpy.flatnonzero(mine & ~self.hidden & r.has_values & r.finite_before)
        base = int(r.base[rows].sum())
        up_to = self.threshold_of(tensor)
        found = None
        if self.is_judged(tensor) and base > 0 and up_to[1] > 0:
            rows = rows[r.finite_nonzero[rows] > 0]
            lower = self.least_exponent(rows, up_to[0], base, 0) if up_to[0] > 0 else NONE_BELOW
            found = (lower, self.least_exponent(rows, up_to[1], base, 1))
        if not hidden:
            return found
        return (found[0] if found else NONE_BELOW, NONE_ABOVE)

    def least_exponent(self, rows, up_to, base, which):
        """The least k at which at most the limit is flushed, by the lower or the upper counts."""
        scales = self.f.rows.scale[rows]

        def fits(k):
            return self.f.up_to(rows, math.ldexp(up_to, -k) * scales)[which].sum() <= LIMIT * base

        low, high = -400, 400
        if fits(low):
            return NONE_BELOW
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    def is_judged(self, tensor):
        """Underflow is judged where a gradient is rounded, or would be."""
        t = self.f.tensors
        return bool(t.is_gradient[tensor] if t.is_narrow[tensor] else t.is_computed[tensor] and self.what_if)

    def smallest_of_steps(self):
        """By step the lower exponent of its smallest scale: of each row alone, the least at which at most 1% are surely flushed."""
        r = self.f.rows
        rows = numpy.flatnonzero(self.asked_in & ~self.hidden & r.has_values & r.finite_before & (r.finite_nonzero > 0))
        up_to = {i: self.threshold_of(i)[0] if self.is_judged(i) else 0.0 for i in numpy.unique(r.tensor[rows])}
        limits = numpy.array([up_to[i] for i in r.tensor[rows]])
        rows, limits = rows[limits > 0], limits[limits > 0]
        low, high = numpy.full(len(rows), -400), numpy.full(len(rows), 400)
        while (high - low > 1).any():
            middle = (low + high) // 2
            fits = self.f.up_to(rows, numpy.ldexp(limits, -middle) * r.scale[rows])[0] <= LIMIT * r.base[rows]
            low, high = numpy.where(fits, low, middle), numpy.where(fits, middle, high)
        found = {}
        for step, exponent in zip(r.step[rows].tolist(), high.tolist()):
            found[step] = max(found.get(step, exponent), exponent)
        return found

    # Of the run.

    @functools.cached_property
    def tensors(self):
        return numpy.unique(self.f.rows.tensor[self.asked_in])

    @functools.cached_property
    def largest(self):
        return self.largest_over(numpy.ones(self.f.rows.n, bool))

    @functools.cached_property
    def smallest(self):
        found = [bounds for bounds in (self.smallest_of(i) for i in self.tensors) if bounds]
        return (max(lower for lower, _ in found), max(upper for _, upper in found)) if found else None

    @functools.cached_property
    def is_loose(self):
        """Bin 0 of a histogram holds all subnormals of FP32. What can be told of these, beside that they are there, is left open: where
        there are some, a bound may be farther away than the one here."""
        rows = numpy.flatnonzero(self.asked_in & ~self.hidden & self.f.rows.has_values)
        return bool(self.f.trace.histograms[rows, 0].any())

    @functools.cached_property
    def hidden_steps(self):
        return len(numpy.unique(self.f.rows.step[self.asked_in & self.hidden]))

    @property
    def none_fits(self):
        return bool(self.largest and self.smallest) and NONE_BELOW < self.smallest[0] > self.largest[1]


def shift_below(magnitude, threshold):
    """The largest k with magnitude 2^k < threshold."""
    shift = math.frexp(threshold)[1] - math.frexp(magnitude)[1]
    return shift if math.ldexp(magnitude, shift) < threshold else shift - 1
