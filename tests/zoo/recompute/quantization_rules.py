"""What FP8 lost at its quantization scales."""

import math

import numpy

from .formats import LIMIT
from .range_rules import ROWS_OF, TENSORS_OF, formats_of, formats_told, lost_phrase
from .rules import Rule
from .sentences import Claim


def before_history(case, tensor):
    """The first rows of delayed scaling, whose scale is 1, and all others."""
    f = case.f
    kept = ~(f.rows.fitted & f.tensors.is_gradient[tensor])
    rows = numpy.flatnonzero(f.rows_of(tensor) & f.rows.known & f.rows.rounding_known & kept)
    delays = is_delayed(case)
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
    is_stale, found = case.finding["code"] == "range.quantization_stale", []
    for i in quantized(case):
        lost = share_of(case, "flushed", before_history(case, i)[1])
        if lost <= LIMIT:
            continue
        matters = case.f.flush_matters(i, with_history(case, i))
        stale = matters and own_share(case, i) <= max(LIMIT, 0.25 * lost)
        if (case.said("norm.most") is not None) == matters and is_stale == stale:
            found.append(i)
    return found


def saturated(case):
    return [i for i in quantized(case) if share_of(case, "overflowed", before_history(case, i)[1]) > 0]


def excess(case, tensors):
    """The largest magnitude over the type's largest number."""
    rows = [(i, before_history(case, i)[1]) for i in tensors]
    return max(float((case.f.rows.largest[of] / case.f.format_of(i).largest).max()) for i, of in rows)


def is_delayed(case):
    return case.f.setting("fp8.recipe") == '"delayed"'


def first_of(name):
    def place(case, tensor, _=None):
        rows = before_history(case, tensor)[1]
        return int(rows[getattr(case.f.rows, name)[rows] > 0][0])

    return place


def first_lossy(case, tensor, _=None):
    """The first row that lost more than the limit; where that is told of stale scales, the first of which that is so."""
    lossy = [row for row in before_history(case, tensor)[1] if share_of(case, "flushed", [row]) > LIMIT]
    if case.finding["code"] != "range.quantization_stale":
        return int(lossy[0]) if lossy else None
    for row in lossy:
        rows = numpy.array([row])
        has_values = case.f.rows.has_values[row] and case.f.rows.largest[row] > 0
        if has_values and own_share_of_rows(case, tensor, rows) <= max(LIMIT, 0.25 * share_of(case, "flushed", rows)):
            return int(row)
    return int(lossy[0])


def later_share(name):
    return lambda case, tensor, _: share_of(case, name, before_history(case, tensor)[1])


def flushed_title(case, said):
    found = flushed(case)
    worst = share_of(case, "flushed", before_history(case, case.first_tensor)[1])
    return Claim(
        {"tensors": len(found), "all": len(quantized(case)), "flushed": worst, "format": case.f.format_of(case.first_tensor).name.upper()},
        the_named_tensor_lost_most=worst == max(share_of(case, "flushed", before_history(case, i)[1]) for i in found),
    )


def unscaled_title(case, said):
    return Claim({"tensors": len(unscaled(case)), "all": len(quantized(case)), "limit": LIMIT}, scaling_is_delayed=is_delayed(case))


def saturated_title(case, said):
    fmt, found = case.f.format_of(case.first_tensor), saturated(case)
    worst = share_of(case, "overflowed", before_history(case, case.first_tensor)[1])
    return Claim(
        {"tensors": len(found), "all": len(quantized(case)), "saturated": worst, "maximum": fmt.largest, "format": fmt.name.upper()},
        the_named_tensor_saturates_most=worst == max(share_of(case, "overflowed", before_history(case, i)[1]) for i in found),
    )


def quantized_gradients_fit(case, said):
    f = case.f
    found = [i for i in quantized(case) if f.tensors.is_gradient[i] and f.rows.base[before_history(case, i)[1]].any()]
    flushed, saturated = (max(share_of(case, name, before_history(case, i)[1]) for i in found) for name in ("flushed", "overflowed"))
    return Claim(
        {"gradients": len(found)},
        the_formats_are_these=formats_told(said) == formats_of(case, found),
        none_lost_much=max(flushed, saturated) <= LIMIT,
        none_underflowed_more=(said["lost"].id, said["lost"].get("share")) == lost_phrase("underflow", flushed),
        none_saturated_more=(said["saturated"].id, said["saturated"].get("share")) == lost_phrase("saturation", saturated),
    )


def rows_of_fit(case, tensor):
    """Of FP8 those with a history."""
    return with_history(case, tensor) if case.f.tensors.is_quantized[tensor] else case.scope


TENSORS_OF |= {"range.quantization_stale": flushed, "range.quantization_flushed": flushed}
ROWS_OF |= {
    "range.quantization_stale": with_history,
    "range.quantization_flushed": with_history,
    "range.gradients_fit": rows_of_fit,
}

# By the ids of templates.
SAID = {
    "range.quantization_flushed": flushed_title,
    "range.quantization_saturated": saturated_title,
    "range.quantization_saturated.excess": lambda case, said: {"excess": excess(case, [case.first_tensor])},
    "range.quantization_stale": flushed_title,
    "range.quantization_stale.own_scale": lambda case, said: {"tensors": len(flushed(case)), "own": own_share(case, case.first_tensor)},
    "range.quantization_unscaled": unscaled_title,
    "range.gradients_fit.quantized": quantized_gradients_fit,
    "advice.fill_amax_history": lambda case, said: {},
    # By how many powers of two the largest magnitude exceeded the type's largest number.
    "advice.margin_larger_by": lambda case, said: {"margin": math.frexp(excess(case, saturated(case)))[1]},
}

FLUSHED = Rule(
    [],
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
        [],
        {
            "rows": lambda case, tensor, _: len(before_history(case, tensor)[0]),
            "flushed": lambda case, tensor, _: share_of(case, "flushed", before_history(case, tensor)[0]),
            "saturated": lambda case, tensor, _: share_of(case, "overflowed", before_history(case, tensor)[0]),
        },
        None,
        unscaled,
    ),
    "range.quantization_saturated": Rule(
        [],
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
