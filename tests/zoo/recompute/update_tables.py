"""The facts, tables and plots of `ulpscope updates`."""

import math
import types

import numpy

from .table_rules import ratio

STALLED = 0.99
WINDOW, BLOCKS, COLUMNS = 10, 32, 256
NORMAL_99 = 2.5758293035489004  # standard deviations of a normal distribution that hold 99% of it


def judged(f):
    """The rows of `parameters` of the steps before the run broke."""
    p = f.tables.parameters
    return p["step"] < f.steps.broken_from if f.steps.is_broken else numpy.ones(len(p["step"]), bool)


def is_stochastic(f, tensor):
    return bool(f.tensors.is_narrow[tensor]) and f.rounding_of(tensor)[0] == "sr"


class Series:
    """Of one weight, or of several together."""

    def __init__(self, f, where):
        p = f.tables.parameters
        self.step, first, place = numpy.unique(p["step"][where], return_index=True, return_inverse=True)
        self.rate = p["learning_rate"][where][first]
        self.n = len(self.step)
        self.nonzero, self.lost = (
            numpy.bincount(place, weights=p[name][where], minlength=self.n).astype(numpy.int64) for name in ("nonzero", "lost")
        )

    def share(self, begin=0, end=None):
        nonzero = int(self.nonzero[begin:end].sum())
        return ratio(int(self.lost[begin:end].sum()), nonzero)

    def tenth(self):
        return -(-self.n // 10)

    def first_tenth(self):
        return self.share(0, self.tenth())

    def last_tenth(self):
        return self.share(self.n - self.tenth())

    def blocks(self, begin, most):
        """(begin, end) of at most that many blocks of what is left from there on."""
        left = self.n - begin
        count = min(most, left)
        return [(begin + left * i // count, begin + left * (i + 1) // count) for i in range(count)]

    def recorded_stall(self):
        stall = None
        for begin in range(self.n - WINDOW, -1, -1):
            share = self.share(begin, begin + WINDOW)
            if share is None or share < STALLED:
                break
            stall = int(self.step[begin])
        return stall

    def rate_bends(self, half):
        with numpy.errstate(all="ignore"):
            start, middle, end = numpy.log(self.rate[[half, half + (self.n - half) // 2, self.n - 1]])
            first, second = middle - start, end - middle
            return not numpy.isnan(self.rate[half]) and first != second and not 0.5 <= second / first <= 2

    def extrapolated_stall(self):
        half = self.n // 2
        if self.n - half < BLOCKS or self.rate_bends(half):
            return None
        x, y = [], []
        for begin, end in self.blocks(half, BLOCKS):
            lost, nonzero = int(self.lost[begin:end].sum()), int(self.nonzero[begin:end].sum())
            if nonzero == 0:
                return None
            x.append((float(self.step[begin]) + float(self.step[end - 1])) / 2)
            y.append(math.log((lost + 0.5) / (nonzero - lost + 0.5)))
        x, y = numpy.array(x), numpy.array(y)

        def slopes(part):
            a, b = x[part], y[part]
            i, j = numpy.triu_indices(len(a), 1)
            return numpy.sort((b[j] - b[i]) / (a[j] - a[i]))

        every, n = slopes(slice(None)), len(x)
        spread = NORMAL_99 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
        least, most = every[math.floor((len(every) - spread) / 2) - 1], every[math.ceil((len(every) + spread) / 2)]
        slope = numpy.median(every)
        halves = [numpy.median(slopes(part)) for part in (slice(n // 2), slice(n // 2, None))]
        if least <= 0 or any(not slope / 1.5 <= of_half <= 1.5 * slope for of_half in halves):
            return None
        middle = float(numpy.median(x))
        rise = math.log(99) - (float(numpy.median(y - slope * x)) + slope * middle)
        at = middle + rise / most, middle + rise / least
        last = int(self.step[-1])
        if math.ceil(at[1]) <= last or at[1] > last + (last - int(self.step[half])):
            return None
        return max(math.floor(at[0]), last + 1), math.ceil(at[1])

    def stall(self):
        """The step, or the bounds of it, and how it is known."""
        recorded = self.recorded_stall()
        if recorded is not None:
            return recorded, "recorded"
        extrapolated = self.extrapolated_stall()
        if extrapolated is None:
            return None, None
        first, last = extrapolated
        return (first if first == last else extrapolated), "extrapolated"


class Updates:
    def __init__(self, f):
        p = f.tables.parameters
        self.f, self.judged = f, judged(f)
        self.tensors = [int(i) for i in numpy.unique(p["tensor"][self.judged])]
        self.series = {i: Series(f, self.rows(i)) for i in self.tensors}
        counted = numpy.isin(p["tensor"], [i for i in self.tensors if not is_stochastic(f, i)])
        self.all, self.not_stochastic = Series(f, self.judged), Series(f, self.judged & counted)
        self.nonzero, self.lost, self.lost_to_decay = (int(p[name][self.judged].sum()) for name in ("nonzero", "lost", "lost_to_decay"))

    def rows(self, tensor):
        return self.judged & (self.f.tables.parameters["tensor"] == tensor)

    def to_decay(self, tensor):
        return int(self.f.tables.parameters["lost_to_decay"][self.rows(tensor)].sum())

    def ratio(self, tensor):
        p, rows = self.f.tables.parameters, self.rows(tensor)
        weight, update = p["weight_norm"][rows], p["update_norm"][rows]
        told = (weight > 0) & numpy.isfinite(weight) & numpy.isfinite(update)
        return float(numpy.median(update[told] / weight[told])) if told.any() else None

    def rate(self, tensor):
        last = float(self.f.tables.parameters["learning_rate"][self.rows(tensor)][-1])
        return None if math.isnan(last) else last

    def decay(self, tensors):
        p = self.f.tables.parameters
        rows = self.judged & numpy.isin(p["tensor"], tensors) & (p["decay_known"] == 1)
        rows &= numpy.isfinite(p["decay_asked"]) & numpy.isfinite(p["decay_applied"])
        return {name: float(p["decay_" + name][rows].sum()) for name in ("asked", "applied")}

    def arrived(self, tensors):
        decay = self.decay(tensors)
        return max(0.0, decay["applied"]) / decay["asked"] if decay["asked"] > 0 else None

    def decayed(self):
        return [i for i in self.tensors if self.decay([i])["asked"] > 0]


def updates(case):
    return case.once(Updates, lambda: Updates(case.f))


def stall(case, tensor):
    if is_stochastic(case.f, tensor):
        return None, None
    return case.once(("stall", tensor), updates(case).series[tensor].stall)


class Sums:
    """By tensor, what the rows of `sums` of the steps before `before` add up to: those of a parameter's gradients together, by step."""

    def __init__(self, f, before):
        s, t, names = f.tables.sums, f.tensors, f.tables.tensors.texts("parameter")
        self.f, self.of, first, sum_of = f, {}, {}, {}
        self.of_gradients = {tensor for tensor in range(t.n) if t.is_gradient[tensor] and t.phase[tensor] == "backward"}
        for tensor in range(t.n):
            is_added = t.function[tensor] in ("accumulate", "add") and tensor in self.of_gradients and names[tensor]
            sum_of[tensor] = first.setdefault((names[tensor], t.dtype[tensor]), tensor) if is_added else tensor
        steps = {}
        for row in numpy.flatnonzero(s["step"] < before):
            steps.setdefault((sum_of[int(s["tensor"][row])], int(s["step"][row])), []).append(row)
        for (tensor, step), rows in sorted(steps.items()):
            total = self.of.setdefault(tensor, types.SimpleNamespace(additions=0, addends=0, absorbed=0, asked=0.0, arrived=0.0, sums=[], first=None))
            asked, arrived = float(s["asked"][rows].sum()), float(s["arrived"][rows].sum())
            if asked > 0 and 1 - arrived / asked >= 0.1 and total.first is None:
                total.first = step
            for name in ("additions", "addends", "absorbed"):
                setattr(total, name, getattr(total, name) + int(s[name][rows].sum()))
            total.asked, total.arrived = total.asked + asked, total.arrived + arrived
            total.sums.append(float(s["magnitude"][rows].max()))

    def lost(self, tensor):
        total = self.of[tensor]
        return max(0.0, total.asked - total.arrived) / total.asked if total.asked > 0 else None

    def stagnant(self, of_gradients):
        """A tenth is lost of what was added, and of the sum. Worst first."""
        found = []
        for tensor, total in self.of.items():
            whole = sum(total.sums) if of_gradients else max(total.sums)
            is_lost = (self.lost(tensor) or 0) >= 0.1 and total.asked - total.arrived >= 0.1 * whole
            if is_lost and (tensor in self.of_gradients) == of_gradients and self.f.rounding_of(tensor)[0] != "sr":
                found.append(tensor)
        return sorted(found, key=lambda tensor: -self.lost(tensor))


def sums(case):
    f = case.f
    return case.once(Sums, lambda: Sums(f, f.steps.broken_from if f.steps.is_broken else math.inf))


PARAMETERS = {
    "type": lambda case, tensor, _: case.f.tensors.dtype[tensor],
    "updates": lambda case, tensor, _: updates(case).series[tensor].n,
    "nonzero": lambda case, tensor, _: int(updates(case).series[tensor].nonzero.sum()),
    "lost": lambda case, tensor, _: updates(case).series[tensor].share(),
    "lost_to_decay": lambda case, tensor, _: ratio(updates(case).to_decay(tensor), int(updates(case).series[tensor].nonzero.sum())),
    "first_tenth": lambda case, tensor, _: updates(case).series[tensor].first_tenth(),
    "last_tenth": lambda case, tensor, _: updates(case).series[tensor].last_tenth(),
    "update_over_weight": lambda case, tensor, _: updates(case).ratio(tensor),
    "learning_rate": lambda case, tensor, _: updates(case).rate(tensor),
    "stalls_in_step": lambda case, tensor, _: stall(case, tensor)[0],
    "stalls": lambda case, tensor, _: stall(case, tensor)[1],
}
DECAY = {
    "asked": lambda case, tensor, _: updates(case).decay([tensor])["asked"],
    "applied": lambda case, tensor, _: updates(case).decay([tensor])["applied"],
    "arrived": lambda case, tensor, _: updates(case).arrived([tensor]),
}
SUMS = {
    "type": lambda case, tensor, _: case.f.tensors.dtype[tensor],
    "additions": lambda case, tensor, _: sums(case).of[tensor].additions,
    "absorbed": lambda case, tensor, _: ratio(sums(case).of[tensor].absorbed, sums(case).of[tensor].addends),
    "lost": lambda case, tensor, _: sums(case).lost(tensor),
}
TABLES = {
    ("updates", "sums"): (SUMS, lambda case: len(sums(case).of)),
    ("updates", "parameters"): (PARAMETERS, lambda case: len(updates(case).tensors)),
    ("updates", "decay"): (DECAY, lambda case: len(updates(case).decayed())),
}
NOTES = [(r"from which on (?P<percent>\d+)% are lost", lambda case, match: {"percent": 100 * STALLED})]
FACTS = {
    "steps": lambda case: case.f.steps.n,
    "parameters": lambda case: len(updates(case).tensors),
    "nonzero_updates": lambda case: updates(case).nonzero,
    "lost": lambda case: ratio(updates(case).lost, updates(case).nonzero),
    "lost_to_decay": lambda case: ratio(updates(case).lost_to_decay, updates(case).nonzero),
    "lost_in_first_tenth": lambda case: updates(case).all.first_tenth(),
    "lost_in_last_tenth": lambda case: updates(case).all.last_tenth(),
    "decay_arrived": lambda case: updates(case).arrived(updates(case).tensors),
    "learning_stalls_in_step": lambda case: updates(case).not_stochastic.stall()[0],
    "stall": lambda case: (
        updates(case).not_stochastic.stall()[1] or "none recorded, and no clear trend towards one"
        if updates(case).not_stochastic.n
        else None
    ),
}


def losing(case):
    """How many lines of lost updates there are: all parameters, and each that lost some."""
    return 1 + sum(int(series.lost.sum()) > 0 for series in updates(case).series.values())


def columns(case):
    """The columns of the pictures, and their width: a power of two of steps, so that there are at most so many."""
    steps = updates(case).all.step
    first, last, width = int(steps[0]), int(steps[-1]), 1
    while last // width - first // width >= COLUMNS:
        width *= 2
    return range(first // width, last // width + 1), width


def check_end(case, plot):
    numbers, width = columns(case)
    if plot["series"] and plot["x_end"] != numbers.stop * width:
        yield f"plot {plot['name']}: it ends at {plot['x_end']}, recomputed {numbers.stop * width}"


def check_lost(case, series):
    """Shares of columns of steps, at their first steps."""
    tensor = case.tensor_of(series)
    everything = updates(case).all
    of = everything if tensor is None else updates(case).series[tensor]
    numbers, width = columns(case)
    expected = []
    for column in numbers:
        places = [i for i, step in enumerate(of.step) if int(step) // width == column]
        share = of.share(places[0], places[-1] + 1) if places else None
        if share is not None:
            expected.append((float(column * width), share))
    told = list(zip(series["x"], series["y"]))
    if told != expected or (tensor is None and series["key"]["step"] != of.step[0]):
        yield f"plot of {series['name']}: {told}, recomputed {expected}"
