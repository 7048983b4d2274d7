"""Two runs side by side: the first trace is a, the second b."""

import math
import re

import numpy

from .rules import Rule, Step
from .sentences import Claim
from .table_rules import Ranges


def pair(case):
    return case.f, case.other


def common(case):
    """(step, loss of a, loss of b) of the steps that both have."""
    a, b = (dict(zip(f.steps.step[f.steps.known].tolist(), f.steps.loss[f.steps.known].tolist())) for f in pair(case))
    return [(step, a[step], b[step]) for step in sorted(a.keys() & b.keys())]


def is_same(x, y):
    return numpy.float64(x).tobytes() == numpy.float64(y).tobytes() or (math.isnan(x) and math.isnan(y))


def first_difference(case):
    return next((step, x, y) for step, x, y in common(case) if not is_same(x, y))


def differ(case, said):
    different = sum(not is_same(x, y) for _, x, y in common(case))
    return {"step": first_difference(case)[0], "different": different, "common": len(common(case))}


def equal(case, said):
    return Claim({"steps": len(common(case))}, they_are_equal=all(is_same(x, y) for _, x, y in common(case)))


def outputs(f):
    """The recorded outputs of ops, but casts."""
    return {
        (int(f.tables.ops["id"][f.tensors.op[i]]), int(f.tensors.slot[i]))
        for i in numpy.unique(f.rows.tensor)
        if f.tensors.is_float[i] and f.tables.ops.words("kind")[f.tensors.op[i]] != "cast"
    }


def unmatched(case, side):
    """How many of either run the other has not."""
    a, b = (outputs(f) for f in pair(case))
    return {"outputs": len((a - b, b - a)[side])}


def only_in(case, tensor, evidence):
    key = (int(evidence["key"]["op"], 16), evidence["key"]["slot"])
    a, b = (outputs(f) for f in pair(case))
    return "a" if key in a - b else "b" if key in b - a else None


def nonfinite(case, side):
    s = pair(case)[side].steps
    return {"nonfinite": int(s.nonfinite.sum()), "steps": s.n, "first_step": int(s.step[s.nonfinite][0])}


def last_means(case):
    """Of the last 50 common steps, or all, the later half: how many, the means of both losses and the error of the difference of these. Added up
    in their order, so that small differences of the means are those of the report."""
    n = min(50, len(common(case))) // 2
    means, variances = [], []
    for side in (1, 2):
        losses = [step[side] for step in common(case)[-n:]]
        means.append(sum(loss / n for loss in losses))
        variances.append(sum((loss - means[-1]) ** 2 / (n - 1) for loss in losses))
    return n, *means, math.sqrt(sum(variances) / n)


def change(case, said):
    _, a, b, _ = last_means(case)
    return Claim({"change": (b - a) / abs(a)}, it_is_seen=abs(b - a) >= 0.001 * abs(a))


def hardly_apart(case, said):
    _, a, b, _ = last_means(case)
    return Claim({"least": 0.001}, it_is_less=abs(b - a) < 0.001 * abs(a))


def samples_of_steps(f):
    """By step: the rows of samples that it trained on, in their order."""
    batches, found = f.tables.batches, {}
    trained = batches.is_any("phase", "forward")
    for step, *row in zip(*(batches[name][trained].tolist() for name in ("step", "micro_batch", "source", "sample"))):
        found.setdefault(step, []).append(row)
    return found


def samples_are_equal(case):
    a, b = map(samples_of_steps, pair(case))
    return all(a[step] == b[step] for step in a.keys() & b.keys())


WIDE = ("f32", "f64")


def given(f, step, of_data):
    """What a run was given in a step, as data or as weights and buffers to begin with, in types that no rounding made narrower."""
    r, t, stats = f.rows, f.tensors, f.tables.stats
    rows = {}
    for i in numpy.flatnonzero((r.step == step) & r.has_values):
        tensor = int(r.tensor[i])
        if t.function[tensor] == "source" and t.phase[tensor] != "evaluation" and t.dtype[tensor] in WIDE and (t.role[tensor] == "input") == of_data:
            key = (int(f.tables.ops["id"][t.op[tensor]]), int(t.slot[tensor]), int(r.micro_batch[i]), t.dtype[tensor])
            rows.setdefault(key, [float(stats[name][i]) for name in ("count", "zeros", "negatives", "largest", "smallest")])
    return rows


def given_the_same(case, of_data):
    step = max(int(f.steps.step[0]) for f in pair(case))
    a, b = (given(f, step, of_data) for f in pair(case))
    return all(a[key] == b[key] for key in a.keys() & b.keys())


def why_not_judged(case):
    if len({int(f.trace.run("seed")) for f in pair(case)}) > 1:
        return "no: other seeds"
    if not given_the_same(case, of_data=False):
        return "no: other weights at the start"
    if not samples_are_equal(case) or not given_the_same(case, of_data=True):
        return "no: other samples, or another order"
    return None


def loss_higher(case, said):
    n, a, b, error = last_means(case)
    return Claim(
        {"steps": n, "mean_a": a, "mean_b": b},
        it_is_higher_than_it_varies=b - a > 2 * error and b - a > 0.05 * abs(a),
        the_runs_are_comparable=why_not_judged(case) is None,
    )


def loss_not_higher(case, said):
    n, a, b, error = last_means(case)
    return Claim(
        {"steps": n, "a": a, "b": b},
        it_is_not_higher=not (b - a > 2 * error and b - a > 0.05 * abs(a)),
        the_runs_are_comparable=why_not_judged(case) is None,
    )


def resolved(case, said):
    _, a, _, error = last_means(case)
    return {"here": max(2 * error, 0.05 * abs(a)) / abs(a), "best": 0.05}


def resolved_at_best(case, said):
    _, a, _, error = last_means(case)
    return Claim({"best": 0.05}, the_losses_vary_by_less=not 2 * error > 0.05 * abs(a))


def errors(case, said):
    _, a, b, error = last_means(case)
    return {"errors": (b - a) / error, "limit": 2, "least": 0.05}


def experiments(case, said):
    return {f"experiment_{side}": f.trace.text_of(f.trace.run("experiment_name")) for side, f in zip("ab", pair(case))}


def by_product(f):
    products, found = f.trace.tables.products, {}
    for product, algorithm in zip(products.texts("product"), products.texts("algorithm")):
        found.setdefault(product, set()).add(algorithm)
    return found


def other_algorithms(case):
    """Of the products that both have: how many there are, and those that were not computed alike."""
    a, b = map(by_product, pair(case))
    both = a.keys() & b.keys()
    return len(both), sorted(product for product in both if a[product] != b[product])


def first_other_algorithm(case, said):
    product = other_algorithms(case)[1][0]
    told = ({each for each in re.split(" or ", text)} for text in re.findall(r"'([^']*)'", case.finding["title_sentences"][1]["text"])[1:])
    return Claim({"product": product}, these_are_its_algorithms=list(told) == [by_product(f)[product] for f in pair(case)])


RULES = {
    "compare.first_difference": Rule(
        values={
            "loss_a": lambda case, *_: first_difference(case)[1],
            "loss_b": lambda case, *_: first_difference(case)[2],
            "b_minus_a": lambda case, *_: first_difference(case)[2] - first_difference(case)[1],
        },
        place=lambda case, *_: Step(first_difference(case)[0]),
    ),
    "compare.losses_equal": Rule(),
    "compare.ops_unmatched": Rule(values={"only_in": only_in}),
    "compare.loss_nonfinite": Rule(),
    "compare.loss_higher": Rule(
        values={
            "mean_a": lambda case, *_: last_means(case)[1],
            "mean_b": lambda case, *_: last_means(case)[2],
            "error_of_the_difference": lambda case, *_: last_means(case)[3],
        },
    ),
    "compare.different_experiments": Rule(),
    "compare.different_seeds": Rule(),
    "compare.different_machines": Rule(),
    "compare.different_algorithms": Rule(),
    "compare.steps_differ": Rule(),
}


SAID = {
    "compare.first_difference": differ,
    "compare.losses_equal": equal,
    # Their numbers are those of their phrases.
    "compare.ops_unmatched": lambda case, said: {},
    "compare.loss_nonfinite": lambda case, said: {},
    "compare.only_in_first": lambda case, said: unmatched(case, 0),
    "compare.only_in_second": lambda case, said: unmatched(case, 1),
    "compare.loss_nonfinite.first_run": lambda case, said: nonfinite(case, 0),
    "compare.loss_nonfinite.second_run": lambda case, said: nonfinite(case, 1),
    "compare.loss_higher": loss_higher,
    "compare.loss_higher.errors": errors,
    "compare.change": change,
    "compare.hardly_apart": hardly_apart,
    "compare.different_experiments": experiments,
    "compare.different_machines": lambda case, said: {},  # names of machines hold digits
    "compare.different_machines.sums": lambda case, said: {},  # FP32
    "compare.different_seeds": lambda case, said: {f"seed_{side}": str(int(f.trace.run("seed"))) for side, f in zip("ab", pair(case))},
    "compare.different_algorithms": lambda case, said: {"products": other_algorithms(case)[0], "other": len(other_algorithms(case)[1])},
    "compare.different_algorithms.first": first_other_algorithm,
    "compare.steps_differ": lambda case, said: {f"steps_{side}": f.steps.n for side, f in zip("ab", pair(case))},
    # Of a verdict without a cause.
    "verdict.losses_are_equal": equal,
    "verdict.no_means_compared": lambda case, said: Claim(
        {"steps": nonfinite(case, 0)["nonfinite"]}, the_second_runs_losses_are_finite=not pair(case)[1].steps.nonfinite.any()
    ),
    "verdict.no_means_of_second": lambda case, said: {"steps": nonfinite(case, 1)["nonfinite"]},
    "verdict.too_few_losses": lambda case, said: {"steps": len(common(case)), "least": 10},
    "verdict.losses_not_higher": loss_not_higher,
    "verdict.one_run_resolves": resolved_at_best,
    "verdict.one_run_resolves_here": resolved,
}


# The summary: by metric, of one side.


def mean_of_last(case, n):
    return lambda f: float(f.steps.loss[f.steps.known][-n:].mean())


def metric(case, name):
    if name.startswith("mean_loss_of_last_"):
        n = min(50, *(int(f.steps.known.sum()) for f in pair(case)))
        return mean_of_last(case, n) if name == f"mean_loss_of_last_{n}_steps" else None
    fixed = {
        "precision": lambda f: f.trace.text_of(f.trace.run("precision")),
        "arithmetic": lambda f: f.trace.text_of(f.trace.run("arithmetic")),
        "quantization_scaling": scaling_of,
        "steps": lambda f: f.steps.n,
        "first_loss": lambda f: float(f.steps.loss[0]),
        "final_loss": lambda f: float(f.steps.loss[-1]),
        "nonfinite_losses": lambda f: int(f.steps.nonfinite.sum()),
        "seconds": seconds,
        "seconds_per_step": lambda f: seconds(f) / f.steps.n,
        "peak_memory_bytes": lambda f: int(f.tables.steps["peak_memory"].max()),
        "skipped_steps": lambda f: int(f.steps.skipped.sum()),
        "lowest_loss_scale": lambda f: float(f.steps.scale_after.min()),
        "final_loss_scale": lambda f: float(f.steps.scale_after[-1]),
    }
    if name in fixed:
        return fixed[name]
    return (lambda f: f.metric(name)) if any(f.metric(name) is not None for f in pair(case)) else None


def scaling_of(f):
    functions = f.tables.ops.words("function")
    return None if "quantize" not in functions else "delayed" if "amax_history_update" in functions else "current"


def seconds(f):
    """In whole nanoseconds."""
    return float(numpy.rint(1e9 * f.tables.steps["seconds"]).sum()) * 1e-9


def summary(case, row):
    """The expected cells of a row, or None where no rule recomputes it."""
    of = metric(case, row["values"]["metric"])
    if of is None:
        return None
    a, b = (of(f) for f in pair(case))
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    return {"metric": row["values"]["metric"], "a": a, "b": b, "b_over_a": b / a if numbers and a != 0 else None}


def matched(case):
    a, b = (
        {
            (int(f.tables.ops["id"][f.tensors.op[i]]), int(f.tensors.slot[i]))
            for i in numpy.unique(f.rows.tensor)
            if f.tensors.is_float[i]
        }
        for f in pair(case)
    )
    return a & b


def tensor_cells(case, row):
    key = (int(row["key"]["op"], 16), row["key"]["slot"])
    cells = {"tensor": row["values"]["tensor"]}
    for side, f in zip("ab", pair(case)):
        tensor = f.trace.tensor_of_output[key]
        of = case.once((Ranges, side), lambda f=f: Ranges(f))
        largest = float(of.unscaled[tensor])
        cells |= {
            f"type_{side}": f.tensors.dtype[tensor],
            f"flushed_{side}": of.share("flushed", tensor),
            f"overflow_{side}": of.share("overflowed", tensor),
            f"nonfinite_{side}": int(of.nonfinite[tensor]),
            f"largest_{side}": math.log2(largest) if largest > 0 else None,
        }
    return cells


# Step by step: how far the norms of outputs lie apart, and where the runs first part (docs/window.md).

COLUMNS = 256  # of a heatmap


class Row:
    """What is compared of a row of stats, without its scales."""

    FIELDS = ("count", "nan", "positive_infinity", "negative_infinity", "zeros", "largest", "smallest", "negatives", "sum", "sum_of_squares")
    NAMES = {"nan": "NaN", "positive_infinity": "+Inf", "negative_infinity": "-Inf", "sum_of_squares": "sum of squares"}
    SCALED = ("largest", "smallest", "sum", "sum_of_squares")
    OF_HEALTH = 5  # the first of them

    def __init__(self, f, i):
        stats, r = f.tables.stats, f.rows
        self.has_values = bool(r.has_values[i])
        self.scale = float(r.scale[i]) * float(r.quantization_scale[i])
        self.nonfinite = int(r.nonfinite[i])
        self.of = {name: float(stats[name][i]) for name in self.FIELDS}
        for name in ("largest", "smallest", "sum"):
            self.of[name] /= self.scale
        self.of["sum_of_squares"] = self.of["sum_of_squares"] / self.scale / self.scale

    @staticmethod
    def first_difference(a, b):
        """(what, of a, of b), or None. Quotients by scales that are no powers of two are rounded, and say nothing."""
        exact = a.scale == b.scale or all(math.frexp(x.scale)[0] == 0.5 for x in (a, b))
        for i, name in enumerate(Row.FIELDS):
            if (i >= Row.OF_HEALTH and not (a.has_values and b.has_values)) or (name in Row.SCALED and not exact):
                continue
            if numpy.float64(a.of[name]).tobytes() != numpy.float64(b.of[name]).tobytes():
                return Row.NAMES.get(name, name), a.of[name], b.of[name]
        return None


def compared_rows(f):
    """Of tensors with dimensions, in order: (where it stands, its row)."""
    r, ids = f.rows, f.tables.ops["id"]
    for i in numpy.flatnonzero(r.known):
        tensor = int(r.tensor[i])
        if f.tensors.is_float[tensor] and f.trace.shapes[tensor] != ():
            output = (int(ids[f.tensors.op[tensor]]), int(f.tensors.slot[tensor]))
            yield (int(r.step[i]), output, int(r.micro_batch[i]), int(r.loss_index[i])), int(i)


class Steps:
    def __init__(self, case):
        a, b = pair(case)
        of_a = {}
        for place, i in compared_rows(a):
            of_a.setdefault(place, i)
        self.first, norms = None, {}
        for place, i in compared_rows(b):
            if place not in of_a:
                continue
            step, output = place[:2]
            x, y = Row(a, of_a[place]), Row(b, i)
            if (self.first is None or step < self.first[0]) and (found := Row.first_difference(x, y)):
                self.first = (step, output, *found)
            norms.setdefault(output, {}).setdefault(step, []).append((x, y))
        self.distances = {output: {step: self.distance(rows) for step, rows in by.items()} for output, by in norms.items()}

    @staticmethod
    def distance(rows):
        a, b = ([row[side] for row in rows] for side in (0, 1))
        broken = [any(row.nonfinite for row in side) for side in (a, b)]
        if any(broken):
            return math.nan if all(broken) else 1.0
        if not all(row.has_values for row in a + b):
            return math.nan
        first, second = (math.sqrt(sum(row.of["sum_of_squares"] for row in side)) for side in (a, b))
        return abs(first - second) / max(first, second) if max(first, second) > 0 else 0.0

    def differing(self):
        return [output for output, by in self.distances.items() if any(x > 0 for x in by.values())]

    def columns(self, output):
        """Of the heatmap: its first steps and its values."""
        steps = [step for by in self.distances.values() for step in by]
        width = 1
        while max(steps) // width - min(steps) // width >= COLUMNS:
            width *= 2
        x = [column * width for column in range(min(steps) // width, max(steps) // width + 1)]
        y = {step: math.nan for step in x}
        for step, value in self.distances[output].items():
            y[step // width * width] = numpy.fmax(y[step // width * width], value)
        return x, [float(y[step]) for step in x], x[-1] + width


def steps_of(case):
    return case.once(Steps, lambda: Steps(case))


def output_of(key):
    return int(key["op"], 16), key["slot"]


def first_output(case):
    """The name that the report gives it, where what has the name is that output, or nothing else that it names is."""
    name = case.report["first_different_output"]
    told = [series["key"] for plot in case.report["plots"] for series in plot["series"]] + [
        row["key"] for table in case.report["tables"] for row in table["rows"]
    ]
    told = {output_of(key) for key in told if key.get("name") == name and "op" in key}
    return name if not told or steps_of(case).first[1] in told else None


def check_differences(case, plot):
    compared = steps_of(case)
    title = f"of {len(plot['series'])} of {len(compared.differing())} outputs that differ"
    if title not in plot["title"]:
        yield f"{plot['title']!r}, recomputed {title!r}"
    for series in plot["series"]:
        x, y, end = compared.columns(output_of(series["key"]))
        told = [math.nan if value in (None, "NaN") else value for value in series["y"]]
        close = len(told) == len(y) and numpy.allclose(told, y, rtol=2.0**-40, atol=2.0**-50, equal_nan=True)
        if series["x"] != x or plot["x_end"] != end or not close:
            yield f"plot of {series['name']}: {list(zip(series['x'], told))} to {plot['x_end']}, recomputed {list(zip(x, y))} to {end}"
        if series["name"].startswith("(first) ") != (output_of(series["key"]) == compared.first[1]):
            yield f"plot of {series['name']}: the first output that differs is {compared.first[1]}"
    step, _, what, a, b = compared.first
    for mark in plot["marks"]:
        told = mark["text"].rpartition(f", {what} ")[2].split(" and ")
        if (mark["from"], mark["to"]) != (step, step) or not all(same_number(x, y) for x, y in zip(told, (a, b))):
            yield f"mark {mark}, recomputed {what} {a} and {b} in step {step}"


def same_number(text, number):
    value = float(text)
    return value == number or math.isnan(value) and math.isnan(number)


FACTS = {
    "losses_judged": why_not_judged,
    "first_different_step": lambda case: steps_of(case).first[0] if steps_of(case).first else None,
    "first_different_output": lambda case: first_output(case) if steps_of(case).first else None,
}
