"""What FP8 lost at its quantisation scales."""

import math

import numpy

from .formats import LIMIT
from .range_rules import little_of_norm
from .rules import Rule
from .sentences import Claim, share


def before_history(case, tensor):
    """The first rows of delayed scaling, whose scale is 1, and all others."""
    f = case.f
    kept = ~(f.rows.fitted & f.tensors.is_gradient[tensor])
    rows = numpy.flatnonzero(f.rows_of(tensor) & f.rows.known & f.rows.rounding_known & kept)
    delays = f.setting("fp8.recipe") == '"delayed"'
    with_history = numpy.flatnonzero(f.rows.quantization_scale[rows] != 1)
    first = int(with_history[0]) if with_history.size else len(rows)
    return (rows[:first], rows[first:]) if delays else (rows[:0], rows)


def share_of(case, name, rows):
    base = int(case.f.rows.base[rows].sum())
    return int(getattr(case.f.rows, name)[rows].sum()) / base if base else 0.0


def quantized(case):
    f = case.f
    return [int(i) for i in numpy.unique(f.rows.tensor) if f.tensors.is_quantized[i]]


def unscaled(case):
    return [
        i
        for i in quantized(case)
        if max(share_of(case, name, before_history(case, i)[0]) for name in ("flushed", "overflowed")) > LIMIT
    ]


def own_share(case, tensor):
    return own_share_of_rows(case, tensor, before_history(case, tensor)[1])


def own_share_of_rows(case, tensor, rows):
    """At most this share would be flushed at the scale that takes each row's largest magnitude to the type's largest number."""
    f = case.f
    rows = rows[f.rows.has_values[rows] & (f.rows.largest[rows] > 0)]
    scales = f.rows.largest[rows] / f.format_of(tensor).largest
    base = int(f.rows.finite_nonzero[rows].sum())
    return int(f.up_to(rows, f.flushed_up_to(tensor)[1] * scales)[1].sum()) / base if base else 0.0


def norm_of(case, tensor):
    return float(case.f.flushed_norm[before_history(case, tensor)[1]].max(initial=0.0))


def with_history(case, tensor):
    mask = numpy.zeros(case.f.rows.n, bool)
    mask[before_history(case, tensor)[1]] = True
    return mask


def flushed(case):
    """What was flushed, by what it came of: a stale scale, values too far apart, or values that the norm hardly feels."""
    title, found = case.finding["title"], []
    for i in quantized(case):
        lost = share_of(case, "flushed", before_history(case, i)[1])
        if lost <= LIMIT:
            continue
        matters = case.f.flush_matters(i, with_history(case, i))
        stale = matters and own_share(case, i) <= max(LIMIT, 0.25 * lost)
        if ("and up to" in title) == matters and ("far below" in title) == stale:
            found.append(i)
    return found


def saturated(case):
    return [i for i in quantized(case) if share_of(case, "overflowed", before_history(case, i)[1]) > 0]


def margin(case, match):
    """By how many powers of two the largest magnitude exceeded the type's largest number."""
    r = case.f.rows
    most = max(float((r.largest[before_history(case, i)[1]] / case.f.format_of(i).largest).max()) for i in saturated(case))
    return {"margin": math.frexp(most)[1]}


def first_of(name):
    def place(case, tensor, _=None):
        rows = before_history(case, tensor)[1]
        return int(rows[getattr(case.f.rows, name)[rows] > 0][0])

    return place


def first_lossy(case, tensor, _=None):
    """The first row that lost more than the limit; where that is told of stale scales, the first of which that is so."""
    lossy = [row for row in before_history(case, tensor)[1] if share_of(case, "flushed", [row]) > LIMIT]
    if "far below" not in case.finding["title"]:
        return int(lossy[0]) if lossy else None
    for row in lossy:
        rows = numpy.array([row])
        has_values = case.f.rows.has_values[row] and case.f.rows.largest[row] > 0
        if has_values and own_share_of_rows(case, tensor, rows) <= max(LIMIT, 0.25 * share_of(case, "flushed", rows)):
            return int(row)
    return int(lossy[0])


def later_share(name):
    return lambda case, tensor, _: share_of(case, name, before_history(case, tensor)[1])


FLUSHED = Rule(
    [
        (
            r"^(?P<tensors>\d+) tensors? lost more than 1% of the nonzero elements to zero when quantised to FP8"
            r"(?:, and up to (?P<norm>\S+) of the norm[.:])?",
            lambda case, match: {"tensors": len(flushed(case)), "norm": share(max(norm_of(case, i) for i in flushed(case)))},
        ),
        little_of_norm(flushed, with_history),
    ],
    {
        "flushed": later_share("flushed"),
        "of_the_norm_at_most": lambda case, tensor, _: norm_of(case, tensor),
        "flushed_at_its_own_scale_at_most": lambda case, tensor, _: own_share(case, tensor),
    },
    first_lossy,
    flushed,
)

RULES = {
    "range.quantization_stale": FLUSHED,
    "range.quantization_flushed": FLUSHED,
    "range.quantization_unscaled": Rule(
        [
            (
                r"^(?P<tensors>\d+) tensors? lost more than 1% of the nonzero elements in the first steps",
                lambda case, match: Claim(
                    {"tensors": len(unscaled(case))}, scaling_is_delayed=case.f.setting("fp8.recipe") == '"delayed"'
                ),
            )
        ],
        {
            "rows": lambda case, tensor, _: len(before_history(case, tensor)[0]),
            "flushed": lambda case, tensor, _: share_of(case, "flushed", before_history(case, tensor)[0]),
            "saturated": lambda case, tensor, _: share_of(case, "overflowed", before_history(case, tensor)[0]),
        },
        None,
        unscaled,
    ),
    "range.quantization_saturated": Rule(
        [
            (r"^(?P<tensors>\d+) tensors? had elements beyond", lambda case, match: {"tensors": len(saturated(case))}),
            (r"A margin larger by (?P<margin>\d+)\b", margin),
        ],
        {
            "steps": lambda case, tensor, _: len(
                numpy.unique([case.f.rows.step[i] for i in before_history(case, tensor)[1] if case.f.rows.overflowed[i] > 0])
            ),
            "elements": lambda case, tensor, _: int(case.f.rows.overflowed[before_history(case, tensor)[1]].sum()),
            "saturated": later_share("overflowed"),
        },
        first_of("overflowed"),
        saturated,
    ),
}
