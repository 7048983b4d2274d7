"""The facts, tables and plots of `ulpscope whatif`, as docs/numerics.md, "What-ifs at every scale", defines them: row by row from the
histograms, for the formats, scales and scalers that are asked for here."""

import functools
import math

import numpy

from .fitting import NONE_ABOVE, NONE_BELOW, shift_below
from .formats import FORMATS, below, beyond_from, flushed_up_to
from .magnitudes import Magnitudes
from .sentences import Bounds
from .table_rules import ratio

ASKED = ("f16", "e4m3")
EXPONENTS = list(range(25))
SCALERS = ("dynamic:growth_interval=20", "static:2^12")
ARGUMENTS = ["--format", "fp16,e4m3", "--scale", "2^0..2^24", *(word for scaler in SCALERS for word in ("--scaling", scaler))]
SUM_ERROR = 2.0**-40
REACH = 32
ALL = "all gradients"

NAMES = {FORMATS[dtype].name: dtype for dtype in ASKED}


class PartOfNorm(Bounds):
    """Differences of sums of squares err by what the sums do, and what is then rounded to FP32 by an ulp of it."""

    def allow(self, lower, upper):
        return all(abs(a * a - b * b) <= 2.0**-48 + 2.0**-21 * b * b for a, b in ((lower, self.lower), (upper, self.upper)))


class Sums:
    """Of rows that add up: elements between bounds, and squares of values without their scales."""

    def __init__(self, base=0, **bounds):
        self.base = base
        for name in ("flushed", "subnormal", "overflow", "lost", "all"):
            setattr(self, name, bounds.get(name, (0, 0)))

    def __add__(self, other):
        pairs = {name: tuple(a + b for a, b in zip(getattr(self, name), getattr(other, name))) for name in vars(self) if name != "base"}
        return Sums(self.base + other.base, **pairs)

    def share(self, name):
        bounds = getattr(self, name)
        return tuple(ratio(count, self.base) for count in bounds) if self.base else None

    @property
    def lost_elements(self):
        return tuple(min(a + b, self.base) for a, b in zip(self.flushed, self.overflow))

    def lost_norm(self):
        if self.base == 0:
            return None
        least, most = self.lost_elements
        if most == 0 or least == self.base:
            return PartOfNorm(*(0.0, 0.0) if most == 0 else (1.0, 1.0))

        def part(squares, of):
            return math.sqrt(squares / of) if of > 0 and squares < of else 1.0

        lower = part(self.lost[0] * (1 - SUM_ERROR), self.all[1] * (1 + SUM_ERROR)) if self.lost[0] > 0 else 0.0
        upper = part(self.lost[1] * (1 + SUM_ERROR), self.all[0] * (1 - SUM_ERROR))
        outwards = numpy.nextafter(numpy.float32([lower, upper]), numpy.float32([0, 1]))
        return PartOfNorm(max(0.0, float(outwards[0])), min(1.0, float(outwards[1])))


def is_power(values):
    mantissas, powers = numpy.frexp(values)
    return (mantissas == 0.5) & (numpy.abs(powers - 1) <= 64)


class Rows:
    """Rows of one tensor with values: what rounding them, divided by divisors, to a format does."""

    def __init__(self, f, rows, contains_scale):
        r = f.rows
        assert (r.before[rows] | ~f.tensors.is_narrow[r.tensor[rows]]).all()  # nothing here is of stored values
        self.f, self.rows, self.flushed = f, rows, {}
        self.scale = r.scale[rows] if contains_scale else numpy.ones(len(rows))
        self.unit = self.scale * r.quantization_scale[rows]
        self.magnitudes = Magnitudes(f, rows)
        self.base = r.finite_nonzero[rows]
        # The others have squares of their own.
        self.aligned = is_power(self.scale) & is_power(self.unit) & (self.magnitudes.bins[:, 0] == 0)

    def counts_up_to(self, sure, maybe):
        least, most = self.magnitudes.up_to(sure)[0], self.magnitudes.up_to(maybe)[1]
        return least.copy(), numpy.maximum(least, most)

    def at(self, dtype, exponent):
        f, r, rows = self.f, self.f.rows, self.rows
        tensor = int(r.tensor[rows[0]])
        mode, flushes = f.rounding_of(tensor, dtype)
        fmt, divisor = FORMATS[dtype], self.unit * 2.0**-exponent
        flush, normal = flushed_up_to(fmt, mode, flushes), flushed_up_to(fmt, mode, True)
        kept = tuple(below(limit) for limit in beyond_from(fmt, mode))
        limits = {name: tuple(limit * divisor for limit in pair) for name, pair in (("flush", flush), ("normal", normal), ("kept", kept))}
        counts = {name: self.counts_up_to(*pair) for name, pair in limits.items()}
        # The counts of the rounding itself, where it was this one.
        own = (self.scale * 2.0**-exponent == 1) & r.rounding_known[rows] & (r.quantization_scale[rows] == 1)
        own &= f.tensors.dtype[tensor] == dtype
        seen = {
            "flush": r.flushed[rows],
            "normal": (r.flushed + r.subnormal)[rows],
            "kept": r.base[rows] - r.overflowed[rows],
        }
        for name, (least, most) in counts.items():
            least[own], most[own] = seen[name][own], seen[name][own]
        small, not_normal, inside = counts["flush"], counts["normal"], counts["kept"]
        self.flushed[dtype, exponent] = small
        total = Sums(
            int(self.base.sum()),
            flushed=(int(small[0].sum()), int(small[1].sum())),
            subnormal=(
                int(numpy.maximum(not_normal[0] - small[1], 0).sum()),
                int(numpy.maximum(not_normal[1] - small[0], 0).sum()),
            ),
            overflow=(int((self.base - inside[1]).sum()), int((self.base - inside[0]).sum())),
        )
        self.add_squares(total, small, inside, limits["flush"], limits["kept"])
        return total

    def add_squares(self, total, small, inside, flush, kept):
        lost, every = [0.0, 0.0], [0.0, 0.0]
        if self.aligned.any():
            lost, every = self.aligned_squares(self.aligned, small, inside, flush, kept)
        if not self.aligned.all():
            of_others, all_of_others = self.other_squares(~self.aligned, flush, kept)
            lost = [a + b for a, b in zip(lost, of_others)]
            every = [a + b for a, b in zip(every, all_of_others)]
        total.lost, total.all = tuple(lost), tuple(every)

    def aligned_squares(self, where, small, inside, flush, kept):
        m, r = self.magnitudes, self.f.rows
        index, unit = m.index[where], self.unit[where] ** 2
        edges, least_of, most_of = m.LOWER_EDGES, m.LEAST**2, m.UPPER_EDGES**2
        counts, squares = m.before
        n = m.bins.shape[1]

        def place(threshold):
            """The bin that holds it, and whether all of that lies under it."""
            threshold = threshold[where]
            bin_of = numpy.searchsorted(edges, threshold, side="right") - 1
            return bin_of, (bin_of >= 0) & (threshold >= numpy.nextafter(m.UPPER_EDGES[numpy.maximum(bin_of, 0)], 0.0)), threshold

        def before(totals, bin_of):
            return totals[index, numpy.minimum(numpy.maximum(bin_of, 0), n)]

        def at(values, bin_of):
            return values[numpy.minimum(numpy.maximum(bin_of, 0), n - 1)]

        def from_bin(bin_of):
            return squares[index, n] - before(squares, bin_of)

        def more(count, of):
            return numpy.maximum(count[where] - of, 0)

        (fs, fs_edge, _), (fm, fm_edge, fm_at) = place(flush[0]), place(flush[1])
        (ks, ks_edge, _), (km, _, km_at) = place(kept[0]), place(kept[1])
        fs, from_kept, next_bin, after = fs + fs_edge, fm + 1, ks + 1, km + 1
        all_of = self.base[where]
        lower = before(squares, fs) + more(small[0], before(counts, fs)) * at(least_of, fs)
        fm_index = fm + fm_edge
        upper = 4 * before(squares, fm_index) + numpy.where(fm_edge, 0, more(small[1], before(counts, fm_index)) * fm_at**2)
        lower = lower + from_bin(after) + more(self.base - inside[1], all_of - before(counts, after)) * km_at**2
        upper = upper + 4 * from_bin(next_bin) + more(self.base - inside[0], all_of - before(counts, next_bin)) * at(most_of, ks)
        kept_to = ks + ks_edge
        least_kept = numpy.where(from_kept < kept_to, before(squares, kept_to) - before(squares, from_kept), 0)
        most_kept = numpy.where(fs < after, 4 * (before(squares, after) - before(squares, fs)), 0)
        every = float((r.sum_of_squares[self.rows[where]] / unit).sum())
        lower, upper, least_kept, most_kept = (float((sums / unit).sum()) for sums in (lower, upper, least_kept, most_kept))
        error = SUM_ERROR * every
        upper = min(upper, every - least_kept + error)
        return [min(max(lower, every - most_kept - error), upper), upper], [every, every]

    def other_squares(self, where, flush, kept):
        m, r = self.magnitudes, self.f.rows
        bins, rows = m.bins[where], self.rows[where]
        smallest, largest = m.smallest[where][:, None], m.largest[where][:, None]
        least = numpy.maximum(m.LOWER_EDGES[None, :], numpy.where(m.LOWER_EDGES[None, :] <= smallest, smallest, 0.0))
        most = numpy.minimum(m.UPPER_EDGES[None, :], numpy.where(m.UPPER_EDGES[None, :] > largest, largest, math.inf))
        sure, maybe, kept_sure, kept_maybe = (limit[where][:, None] for limit in (*flush, *kept))
        unit = self.unit[where]
        all_lost = (most <= sure) | (least > kept_maybe)
        perhaps = ~all_lost & ((least <= maybe) | (most > kept_sure))
        capped = numpy.where(most > kept_sure, most, numpy.minimum(most, maybe))
        lower = (bins * numpy.where(all_lost, least, 0.0) ** 2).sum(axis=1) / unit**2
        upper = (bins * numpy.where(all_lost, most, numpy.where(perhaps, capped, 0.0)) ** 2).sum(axis=1) / unit**2
        every = r.sum_of_squares[rows] / unit**2
        total = float(every.sum())
        return [float(lower.sum()), float(numpy.minimum(upper, every).sum())], [total, total]


class WhatIfs:
    def __init__(self, f):
        self.f = f
        t, r = f.tensors, f.rows
        phases = t.in_phase("scaling")
        role = numpy.array(t.role)
        self.contains_scale = t.is_computed | (role == "accumulated_gradient") | ((role == "loss") & phases)
        self.judged = t.is_computed & ~t.stays_wide & t.is_float & ~t.is_quantized
        self.is_float = t.is_float[r.tensor]
        self.answered = self.is_float & r.has_values
        self.tensors = numpy.unique(r.tensor[self.answered])

    @functools.cached_property
    def rows(self):
        return {i: Rows(self.f, numpy.flatnonzero(self.answered & self.f.rows_of(i)), self.contains_scale[i]) for i in self.tensors}

    @functools.cache
    def of(self, tensor, dtype, exponent):
        return self.rows[tensor].at(dtype, exponent)

    @functools.cache
    def of_gradients(self, dtype, exponent):
        return sum((self.of(i, dtype, exponent) for i in self.tensors if self.judged[i]), Sums())

    @functools.cached_property
    def known(self):
        return self.of_gradients(ASKED[0], 0).base > 0

    @functools.cache
    def least(self, dtype):
        """(which scale loses least, the first and the last that may lose as little), as exponents."""
        norms = [self.of_gradients(dtype, k).lost_norm() or PartOfNorm(0.0, 0.0) for k in EXPONENTS]
        least = min(range(len(norms)), key=lambda i: (norms[i].upper, i))
        may = [i for i, norm in enumerate(norms) if norm.lower <= norms[least].upper]
        return EXPONENTS[least], EXPONENTS[min(may)], EXPONENTS[max(may)]

    # Steps.

    @functools.cached_property
    def gradient_rows(self):
        return numpy.flatnonzero(self.judged[self.f.rows.tensor])

    @functools.cached_property
    def steps(self):
        return numpy.unique(self.f.rows.step[self.gradient_rows])

    @functools.cache
    def fits_up_to(self, dtype):
        """By step (lower, upper) exponents up to which no gradient overflows."""
        f, r, fmt = self.f, self.f.rows, FORMATS[dtype]
        found = {int(step): (NONE_ABOVE, NONE_ABOVE) for step in self.steps}
        for row in self.gradient_rows:
            tensor, step, scale = int(r.tensor[row]), int(r.step[row]), float(r.scale[row])
            exponent, power = math.frexp(scale)[1] - 1, math.frexp(scale)[0] == 0.5
            nonfinite = bool(r.known[row]) and not r.finite_before[row]
            lower, upper = NONE_BELOW, NONE_ABOVE
            if r.has_values[row]:
                some, every = beyond_from(fmt, f.rounding_of(tensor, dtype)[0])
                largest = float(r.largest[row])
                lower = upper = NONE_ABOVE
                if largest > 0:
                    lower, upper = shift_below(largest, some * scale), shift_below(largest, every * scale)
                if nonfinite:
                    lower, upper = NONE_BELOW, min(upper, exponent - 1 if power else exponent)
            if r.known[row] and r.rounding_known[row] and f.tensors.dtype[tensor] == dtype and power:
                if r.overflowed[row] > 0 or nonfinite:
                    upper = min(upper, exponent - 1)
                else:
                    lower = max(lower, exponent)
            found[step] = min(found[step][0], lower), min(found[step][1], upper)
        return found

    def overflowing(self, dtype, exponent):
        found = self.fits_up_to(dtype).values()
        return sum(exponent > upper for _, upper in found), sum(exponent > lower for lower, _ in found)

    @functools.cache
    def flushed_by_step(self, dtype, exponent):
        """Of all gradients, (at least, at most, of how many)."""
        found = {int(step): [0, 0, 0] for step in self.steps}
        for tensor in self.tensors:
            if self.judged[tensor]:
                self.of(tensor, dtype, exponent)
                rows = self.rows[tensor]
                for step, *counts in zip(self.f.rows.step[rows.rows].tolist(), *rows.flushed[dtype, exponent], rows.base):
                    found[step] = [a + int(b) for a, b in zip(found[step], counts)]
        return found

    @functools.cache
    def replayed(self, scaler, dtype):
        return Replay(self, scaler, dtype)


class Replay:
    """A scaler over the steps, along every way that the recording allows."""

    def __init__(self, what_ifs, scaler, dtype):
        interval = int(scaler.partition("=")[2]) if scaler.startswith("dynamic") else None
        begin = 16 if interval else int(scaler.partition("^")[2])
        known = range(min(16 - REACH, 12), 16 + REACH + 1)
        fits = what_ifs.fits_up_to(dtype)
        # By exponent and clean steps: skipped, lowest, highest and flushed, each from the least to the most.
        ways = {(begin, 0): ((0, 0), (begin, begin), (begin, begin), (0, 0))}
        self.undecided, self.base, self.changes = 0, 0, []
        for step in (int(step) for step in what_ifs.steps):
            scales = min(k for k, _ in ways), max(k for k, _ in ways)
            if not self.changes or self.changes[-1][1] != scales:
                self.changes.append((step, scales))
            after, lower, undecided = {}, fits[step][0], False
            for (k, clean), (skipped, lowest, highest, flushed) in ways.items():
                may_fit, may_overflow = k <= fits[step][1], k > lower
                undecided = undecided or (may_fit and may_overflow)
                here = what_ifs.flushed_by_step(dtype, min(max(k, known[0]), known[-1]))[step]
                here = (here[0] if k <= known[-1] else 0), (here[1] if k >= known[0] else here[2])
                for overflows in [False] * may_fit + [True] * may_overflow:
                    to = (k - 1, 0) if overflows else (k, clean + 1) if interval and clean + 1 < interval else (k + 1, 0)
                    if interval is None:
                        to = (k, 0)
                    way = (
                        tuple(n + overflows for n in skipped),
                        tuple(min(n, to[0]) for n in lowest),
                        tuple(max(n, to[0]) for n in highest),
                        tuple(a + b for a, b in zip(flushed, here)),
                    )
                    after[to] = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(after[to], way)] if to in after else way
            ways, self.undecided = after, self.undecided + undecided
            self.base += what_ifs.flushed_by_step(dtype, 0)[step][2]
        merged = [(min(way[i][0] for way in ways.values()), max(way[i][1] for way in ways.values())) for i in range(4)]
        self.skipped, self.lowest, self.highest, self.flushed = merged
        self.final = min(k for k, _ in ways), max(k for k, _ in ways)


def of(case):
    """Of a trace, once."""
    if not hasattr(case.f, "what_ifs"):
        case.f.what_ifs = WhatIfs(case.f)
    return case.f.what_ifs


def is_scaled(case):
    s = case.f.steps
    return bool(((s.scale_before != 1) | (s.scale_after != 1)).any())


def extreme_scale(case, extreme):
    s = case.f.steps
    return float(extreme(numpy.concatenate([s.scale_before, s.scale_after])))


FACTS = {
    "formats": lambda case: ", ".join(NAMES),
    "scales": lambda case: f"2^{EXPONENTS[0]}..2^{EXPONENTS[-1]}",
    "steps": lambda case: case.f.steps.n,
    "steps_with_gradients": lambda case: len(of(case).steps),
    "rows_answered": lambda case: int(of(case).answered.sum()),
    "rows_not_known": lambda case: int((of(case).is_float & ~of(case).answered).sum()),
    "gradient_rows_behind_flushed": lambda case: int(case.fitting.hidden[of(case).gradient_rows].sum()),
    "lowest_scale": lambda case: extreme_scale(case, numpy.min) if is_scaled(case) else None,
    "highest_scale": lambda case: extreme_scale(case, numpy.max) if is_scaled(case) else None,
}


def told_sums(case, tensor, row):
    """What a row of the table is about."""
    dtype, scale = NAMES[row["values"]["format"]], row["values"]["scale"]
    exponent = 0 if scale is None else int(math.log2(scale))
    return of(case).of_gradients(dtype, exponent) if tensor is None else of(case).of(tensor, dtype, exponent)


def scale_of(case, tensor, row):
    """One of those asked for, where the values contain one."""
    scale = row["values"]["scale"]
    if tensor is not None and not of(case).contains_scale[tensor]:
        return None
    return scale if scale in [2.0**k for k in EXPONENTS] else math.nan


def steps_cell(case, dtype, exponent):
    least, most = of(case).overflowing(dtype, exponent)
    return least if least == most else (least, most)


WHAT_IF = {
    "tensor": lambda case, tensor, row: ALL,  # of a tensor its name
    "format": lambda case, tensor, row: row["values"]["format"] if row["values"]["format"] in NAMES else None,
    "scale": scale_of,
    **{name: lambda case, tensor, row, name=name: told_sums(case, tensor, row).share(name) for name in ("flushed", "subnormal", "overflow")},
    "lost_norm": lambda case, tensor, row: told_sums(case, tensor, row).lost_norm(),
    "steps_overflowing": lambda case, tensor, row: None
    if tensor is not None
    else steps_cell(case, NAMES[row["values"]["format"]], int(math.log2(row["values"]["scale"]))),
}


def what_if_rows(case):
    w = of(case)
    scales = sum(len(EXPONENTS) if w.contains_scale[i] else 1 for i in w.tensors) + len(EXPONENTS) * w.known
    return scales * len(ASKED)


def at_least(part):
    def cell(case, _, row):
        dtype = NAMES[row["values"]["format"]]
        return part(case, dtype, of(case).least(dtype))

    return cell


LEAST = {
    "format": WHAT_IF["format"],
    "scale": at_least(lambda case, dtype, least: 2.0 ** least[0]),
    "lost_norm": at_least(lambda case, dtype, least: of(case).of_gradients(dtype, least[0]).lost_norm()),
    **{
        name: at_least(lambda case, dtype, least, name=name: of(case).of_gradients(dtype, least[0]).share(name))
        for name in ("flushed", "overflow")
    },
    "steps_overflowing": at_least(lambda case, dtype, least: steps_cell(case, dtype, least[0])),
    "from": at_least(lambda case, dtype, least: 2.0 ** least[1]),
    "to": at_least(lambda case, dtype, least: 2.0 ** least[2]),
}

RECORDED = {
    "skipped_steps": lambda case: int(case.f.steps.skipped.sum()),
    "undecided_steps": lambda case: None,
    "final_scale": lambda case: float(case.f.steps.scale_after[-1]),
    "lowest_scale": FACTS["lowest_scale"],
    "highest_scale": FACTS["highest_scale"],
    "flushed": lambda case: None,
}


def replayed(name, cell):
    def of_row(case, _, row):
        values = row["values"]
        if values["scaling"] == "as recorded":
            return RECORDED[name](case)
        # Of no steps nothing is known but that none was undecided.
        if not len(of(case).steps):
            return 0 if name == "undecided_steps" else None
        return cell(of(case).replayed(values["scaling"], NAMES[values["format"]]))

    return of_row


def scales_cell(bounds):
    return 2.0 ** bounds[0], 2.0 ** bounds[1]


SCALING = {
    "scaling": lambda case, _, row: row["values"]["scaling"] if row["values"]["scaling"] in (*SCALERS, "as recorded") else None,
    "format": lambda case, _, row: case.f.trace.text_of(case.f.trace.run("precision"))
    if row["values"]["scaling"] == "as recorded"
    else WHAT_IF["format"](case, _, row),
    "skipped_steps": replayed("skipped_steps", lambda r: r.skipped[0] if r.skipped[0] == r.skipped[1] else r.skipped),
    "undecided_steps": replayed("undecided_steps", lambda r: r.undecided),
    "final_scale": replayed("final_scale", lambda r: scales_cell(r.final)),
    "lowest_scale": replayed("lowest_scale", lambda r: scales_cell(r.lowest)),
    "highest_scale": replayed("highest_scale", lambda r: scales_cell(r.highest)),
    "flushed": replayed("flushed", lambda r: tuple(ratio(n, r.base) for n in r.flushed) if r.base else None),
}

TABLES = {
    ("whatif", "least"): (LEAST, lambda case: len(ASKED) * of(case).known),
    ("whatif", "what_if"): (WHAT_IF, what_if_rows),
    ("whatif", "scaling"): (SCALING, lambda case: len(SCALERS) * len(ASKED) + is_scaled(case)),
}

NOTES = [
    (r"(?P<steps>[\d,]+) steps? without recorded gradients", lambda case, match: {"steps": case.f.steps.n - len(of(case).steps)}),
    (r"(?P<rows>[\d,]+) rows? told nothing", lambda case, match: {"rows": FACTS["rows_not_known"](case)}),
    (r"(?P<rows>[\d,]+) rows? of gradients had been", lambda case, match: {"rows": FACTS["gradient_rows_behind_flushed"](case)}),
]


def check_lost(case, plot):
    w, marks = of(case), []
    if [series["name"] for series in plot["series"]] != list(NAMES) or plot["x_end"] != EXPONENTS[-1] + 1:
        yield f"plot of {[series['name'] for series in plot['series']]} to {plot['x_end']}"
    for series in plot["series"]:
        dtype = NAMES[series["name"]]
        expected = [w.of_gradients(dtype, k).lost_elements[1] / w.of_gradients(dtype, k).base for k in EXPONENTS]
        if series["x"] != EXPONENTS or any(abs(a - b) > 2.0**-40 for a, b in zip(series["y"], expected)):
            yield f"plot of {series['name']}: {series['y']}, recomputed {expected}"
        marks.append(((w.least(dtype)[0],) * 2, f"{series['name']} loses least of the norm"))
    if is_scaled(case):
        exponents = tuple(math.log2(extreme_scale(case, extreme)) for extreme in (numpy.min, numpy.max))
        marks.append((exponents, "the scales of the run itself"))
    if [((mark["from"], mark["to"]), mark["text"]) for mark in plot["marks"]] != marks:
        yield f"marks {plot['marks']}, recomputed {marks}"


def holding_to(points, last):
    return points if points[-1][0] >= last else [*points, (last, points[-1][1])]


def check_scaling(case, plot):
    w, s = of(case), case.f.steps
    last, expected = int(s.step[-1]), []
    if is_scaled(case):
        changes = [(int(step) + 1, math.log2(b)) for step, a, b in zip(s.step, s.scale_before, s.scale_after) if a != b]
        expected.append(holding_to([(int(s.step[0]), math.log2(s.scale_before[0])), *changes], last))
    for scaler in SCALERS:
        for dtype in ASKED:
            changes = w.replayed(scaler, dtype).changes if len(w.steps) else []
            sides = [[(step, scales[side]) for step, scales in changes] for side in (0, 1)]
            expected += [holding_to(side, last) for side in sides[: 1 + (sides[0] != sides[1])] if side]
    told = [list(zip(series["x"], series["y"])) for series in plot["series"]]
    if told != expected:
        yield f"plot of scales: {told}, recomputed {expected}"
