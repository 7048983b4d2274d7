"""Two runs side by side: the first trace is a, the second b."""

import math

import numpy

from .rules import Rule, Step
from .sentences import Claim, general
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


def differ(case, match):
    return {"step": first_difference(case)[0], "equal": sum(is_same(x, y) for _, x, y in common(case)), "all": len(common(case))}


def outputs(f):
    """The recorded outputs of ops, but casts."""
    return {
        (int(f.tables.ops["id"][f.tensors.op[i]]), int(f.tensors.slot[i]))
        for i in numpy.unique(f.rows.tensor)
        if f.tensors.is_float[i] and f.tables.ops.words("kind")[f.tensors.op[i]] != "cast"
    }


def unmatched(case, match):
    a, b = (outputs(f) for f in pair(case))
    return {"a": len(a - b), "b": len(b - a)}


def only_in(case, tensor, evidence):
    key = (int(evidence["key"]["op"], 16), evidence["key"]["slot"])
    a, b = (outputs(f) for f in pair(case))
    return "a" if key in a - b else "b" if key in b - a else None


def nonfinite(case, match):
    return {name: f.steps.nonfinite.sum() for name, f in zip("ab", pair(case))}


def last_means(case):
    """Of as many losses of each, at most 50, the later half: their means and the error of the difference of these."""
    n = min(50, *(int(f.steps.known.sum()) for f in pair(case))) // 2
    a, b = (f.steps.loss[f.steps.known][-n:] for f in pair(case))
    return n, float(a.mean()), float(b.mean()), math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / n)


def loss_higher(case, match):
    n, a, b, error = last_means(case)
    return Claim(
        {"n": n, "a": general(a, 4), "b": general(b, 4)}, it_is_higher_than_it_varies=b - a > 2 * error and b - a > 0.05 * abs(a)
    )


def experiments(case, match):
    return dict(zip("ab", (f.trace.text_of(f.trace.run("experiment_name")) for f in pair(case))))


RULES = {
    "compare.first_difference": Rule(
        [(r"^The losses differ from step (?P<step>\d+) on: (?P<equal>\d+) of (?P<all>\d+) common steps are bit-equal\.$", differ)],
        {
            "loss_a": lambda case, *_: first_difference(case)[1],
            "loss_b": lambda case, *_: first_difference(case)[2],
            "b_minus_a": lambda case, *_: first_difference(case)[2] - first_difference(case)[1],
        },
        lambda case, *_: Step(first_difference(case)[0]),
    ),
    "compare.losses_equal": Rule(
        [
            (
                r"^The losses of all (?P<all>\d+) common steps are bit-equal\.$",
                lambda case, match: Claim(
                    {"all": len(common(case))}, they_are_equal=all(is_same(x, y) for _, x, y in common(case))
                ),
            )
        ]
    ),
    "compare.ops_unmatched": Rule(
        [
            (
                r"^(?P<a>\d+) recorded outputs, casts apart, are in the first trace only, and (?P<b>\d+) in the second only\.$",
                unmatched,
            )
        ],
        {"only_in": only_in},
    ),
    "compare.loss_nonfinite": Rule(
        [(r"NaN or infinity in (?P<a>\d+) steps? of the first run and (?P<b>\d+) of the second\.$", nonfinite)]
    ),
    "compare.loss_higher": Rule(
        [(r"its last (?P<n>\d+) losses have the mean (?P<b>\S+), those of the first run (?P<a>\S+)\.$", loss_higher)],
        {
            "mean_a": lambda case, *_: last_means(case)[1],
            "mean_b": lambda case, *_: last_means(case)[2],
            "error_of_the_difference": lambda case, *_: last_means(case)[3],
        },
    ),
    "compare.different_experiments": Rule([(r"'(?P<a>[^']*)' and '(?P<b>[^']*)'\.$", experiments)]),
    "compare.different_seeds": Rule(
        [
            (
                r"^The seeds differ: (?P<a>\d+) and (?P<b>\d+)\.$",
                lambda case, match: dict(zip("ab", (int(f.trace.run("seed")) for f in pair(case)))),
            )
        ]
    ),
    "compare.steps_differ": Rule(
        [
            (
                r"^The runs have (?P<a>\d+) and (?P<b>\d+) steps?;",
                lambda case, match: dict(zip("ab", (f.steps.n for f in pair(case)))),
            )
        ]
    ),
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
