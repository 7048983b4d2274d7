"""Which loss scales fit, as docs/numerics.md, "What-ifs and fitting scales", defines it: exponents k of scales 2^k, between bounds, which
are those that it defines and have to be equal. What is behind a gradient of which more than the limit was flushed, so that its norm felt
it, is no evidence. Of statistics of stored values nothing is computed here: the CPU's ops count before they round."""

import functools
import math

import numpy

from .formats import FORMATS, LIMIT, beyond_from, flushed_up_to
from .magnitudes import Magnitudes

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
        return carries & short[r.tensor] & t.is_float[r.tensor] & r.judged & ~self.of_forward

    @functools.cached_property
    def of_forward(self):
        """Rows of steps without a finite loss, or with one that is nothing, and those whose NaN and infinities came from the forward pass: no rounding had made a
        gradient of that backward pass infinite before."""
        f, r, t = self.f, self.f.rows, self.f.tensors
        lossless = set(f.steps.step[f.steps.nonfinite | f.steps.fitted].tolist())
        phases = f.trace.tables.ops.words("phase")
        of_forward = numpy.array([phases[t.op[i]] in ("forward", "loss") for i in range(t.n)])
        broken, overflowed = set(), set()
        found = numpy.zeros(r.n, bool)
        for row in range(r.n):
            tensor, step, batch = int(r.tensor[row]), int(r.step[row]), int(r.micro_batch[row])
            one_pass = (step, batch, int(f.tables.stats["loss_index"][row]))
            is_finite = r.finite_before[row] and r.became_infinite[row] == 0
            if of_forward[tensor] and r.scale[row] == 1 and not is_finite:
                broken.add((step, batch))
            if t.is_gradient[tensor] and r.finite_before[row] and r.became_infinite[row] > 0:
                overflowed.add(one_pass)
            from_before = not r.finite_before[row] and (step, batch) in broken and one_pass not in overflowed
            found[row] = step in lossless or from_before
        return found

    @functools.cached_property
    def lost_too_much(self):
        """Rows of computed gradients of which the rounding flushed more than the limit, so that the norm felt it, or whose op read that
        much as zero."""
        f, r, t = self.f, self.f.rows, self.f.tensors
        starved = r.input_flushed > LIMIT * r.input_nonzero
        flushed = r.rounding_known & r.known & (r.base > 0) & (r.flushed > LIMIT * r.base) & f.felt & t.is_narrow[r.tensor]
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

    @functools.cache
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

    @functools.cached_property
    def tells(self):
        """The rows whose flushing is known at every scale."""
        r = self.f.rows
        if (self.asked_in & ~r.before & self.f.tensors.is_narrow[r.tensor]).any():
            raise LookupError("statistics of the values before a rounding")
        return self.asked_in & ~self.hidden & r.has_values & r.finite_before

    @functools.cache
    def smallest_of(self, tensor):
        """(lower, upper) of one tensor over the judged steps: the least exponent at which at most 1% of its nonzero elements are flushed, or
        at most a tenth of its rows feel it, what is less of both; None where its rows do not tell."""
        f, r = self.f, self.f.rows
        mine = f.rows_of(tensor)
        hidden = bool((mine & self.asked_in & self.hidden).any())
        rows = numpy.flatnonzero(mine & self.tells)
        up_to, found = self.threshold_of(tensor), None
        if self.is_judged(tensor) and r.base[rows].any() and up_to[1] > 0 and not f.noise[rows].all():
            rows = rows[r.base[rows] > 0]
            found = tuple(
                min(self.by_share(rows, up_to[which], which), self.by_norm(rows, which)) if up_to[which] > 0 else NONE_BELOW
                for which in (0, 1)
            )
        if not hidden:
            return found
        return (found[0] if found else NONE_BELOW, NONE_ABOVE)

    def by_share(self, rows, up_to, which):
        """The least k at which at most the limit is flushed of some rows together, by the lower or the upper counts."""
        magnitudes, scales, most = Magnitudes(self.f, rows), self.f.rows.scale[rows], LIMIT * self.f.rows.base[rows].sum()
        return float(
            least_exponents(lambda k: numpy.array([magnitudes.up_to(math.ldexp(up_to, -int(k[0])) * scales)[which].sum() <= most]), 1)[0]
        )

    def by_norm(self, rows, which):
        """The least k at which at most a tenth of the rows feel what is flushed."""
        return float(numpy.sort(self.not_felt_from[which][rows])[::-1][len(rows) // 10])

    @functools.cached_property
    def not_felt_from(self):
        """(lower, upper) by row: the least k at which the squares of what is flushed are at most the part that is felt of all squares, by
        the lower or the upper sums. The sum of all squares is known to 2^-40."""
        r, bounds = self.f.rows, []
        rows = numpy.flatnonzero(self.tells & (r.base > 0))
        magnitudes, tensors = Magnitudes(self.f, rows), numpy.unique(r.tensor[rows])
        part = self.by_row(rows, {i: FORMATS[self.dtype_of(i)].felt ** 2 for i in tensors})
        for which, known in ((0, 1 + 2.0**-40), (1, 1 - 2.0**-40)):
            up_to = self.by_row(rows, {i: self.threshold_of(i)[which] for i in tensors}) * r.scale[rows]
            most = part * r.sum_of_squares[rows] * known
            bounds.append(numpy.full(r.n, math.nan))
            bounds[-1][rows] = least_exponents(lambda k: magnitudes.squares_up_to(numpy.ldexp(up_to, -k))[which] <= most, len(rows))
        return bounds

    def by_row(self, rows, of_tensor):
        return numpy.array([of_tensor[i] for i in self.f.rows.tensor[rows]])

    def is_judged(self, tensor):
        """Underflow is judged where a gradient is rounded, or would be."""
        t = self.f.tensors
        return bool(t.is_gradient[tensor] if t.is_narrow[tensor] else t.is_computed[tensor] and self.what_if)

    def smallest_of_steps(self):
        """By step the lower exponent of its smallest scale: of each row alone, the least at which at most 1% are surely flushed, or the norm
        does not surely feel it."""
        r = self.f.rows
        rows = numpy.flatnonzero(self.tells & (r.base > 0) & ~self.f.noise)
        limits = self.by_row(rows, {i: self.threshold_of(i)[0] if self.is_judged(i) else 0.0 for i in numpy.unique(r.tensor[rows])})
        rows, limits = rows[limits > 0], limits[limits > 0] * r.scale[rows[limits > 0]]
        magnitudes = Magnitudes(self.f, rows)
        by_share = least_exponents(lambda k: magnitudes.up_to(numpy.ldexp(limits, -k))[0] <= LIMIT * r.base[rows], len(rows))
        found = {}
        for step, exponent in zip(r.step[rows].tolist(), numpy.minimum(by_share, self.not_felt_from[0][rows]).tolist()):
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


def least_exponents(fits, n):
    """Of n monotonic conditions on k the least k from which on each holds."""
    low, high = numpy.full(n, -400), numpy.full(n, 400)
    always = fits(low)
    while (high - low > 1).any():
        middle = (low + high) // 2
        fit = fits(middle)
        low, high = numpy.where(fit, low, middle), numpy.where(fit, middle, high)
    return numpy.where(always, NONE_BELOW, high)


def shift_below(magnitude, threshold):
    """The largest k with magnitude 2^k < threshold."""
    shift = math.frexp(threshold)[1] - math.frexp(magnitude)[1]
    return shift if math.ldexp(magnitude, shift) < threshold else shift - 1
