"""Ranges of values: what overflowed, was flushed or saturated."""

import math

import numpy

from .beginnings import OF_PARAMETERS
from .formats import FORMATS, LIMIT, flushed_up_to
from .nonfinite_rules import MATCHED, NONFINITE_VALUES, ORIGIN_TEXT, nonfinite_place
from .rules import Rule, log2
from .sentences import Claim, Shown, general, scale, share


def counts(case, where):
    """The tensors that have such rows."""
    return numpy.unique(case.f.rows.tensor[where])


# Overflow.


def overflowed_rows(case):
    f = case.f
    return case.scope & f.rows.rounding_known & (f.rows.became_infinite > 0) & f.tensors.is_plain[f.rows.tensor]


def gradients_kept(case):
    f = case.f
    return counts(case, overflowed_rows(case) & f.rows.is_gradient & ~f.rows.skipped)


def kept(case, match):
    f = case.f
    rows = overflowed_rows(case) & f.rows.is_gradient & ~f.rows.skipped
    reached = match["reached"] or ""
    of_parameters = f.tables.tensors.is_any("role", *OF_PARAMETERS)[f.rows.tensor] & ~f.rows.skipped
    return Claim(
        {"tensors": len(gradients_kept(case)), "steps": len(numpy.unique(f.rows.step[rows])), "reached": None},
        infinities_reached_the_weights="reached the weights" not in reached or f.reached_weights,
        no_weight_became_infinite="no weight" not in reached or not f.reached_weights,
        no_gradient_did="gradient of a parameter" not in reached or not (of_parameters & (f.rows.nonfinite > 0)).any(),
    )


def clipped(case, match):
    """Some op that clips by value read infinities in a step that was taken, and handed on none."""
    f, hid = case.f, False
    infinite = case.scope & ~f.rows.skipped & (f.rows.infinite > 0)
    for i in range(f.tensors.n):
        if f.tensors.phase[i] != "scaling" or f.tensors.function[i] != "clamp" or (infinite & f.rows_of(i)).any():
            continue
        for number, producer, slot in f.trace.inputs_of(f.tensors.op[i]):
            read = f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)]
            hid = hid or number == 0 and bool((infinite & f.rows_of(read)).any())
    return Claim(kept(case, match), clipping_read_an_infinity_and_handed_on_none=hid, no_weight_became_infinite=not f.reached_weights)


def gradients_only_skipped(case):
    f = case.f
    skipped = counts(case, overflowed_rows(case) & f.rows.is_gradient & f.rows.skipped)
    return numpy.setdiff1d(skipped, gradients_kept(case))


def only_skipped(case, match):
    return {"tensors": len(gradients_only_skipped(case))}


def overflow_place(case, tensor, _=None):
    return case.f.first_row(overflowed_rows(case) & case.f.rows_of(tensor))


def overflow_steps(case, tensor, _):
    return len(numpy.unique(case.f.rows.step[overflowed_rows(case) & case.f.rows_of(tensor)]))


def overflow_elements(case, tensor, _):
    return int(case.f.sums("became_infinite", overflowed_rows(case))[tensor])


def is_origin_finding(case):
    return MATCHED in case.finding["title"] or "held NaN or infinity" in case.finding["title"]


def gradients_overflow_place(case, tensor, _=None):
    return nonfinite_place(case, tensor) if is_origin_finding(case) else overflow_place(case, tensor)


def values_that_overflowed(case):
    f = case.f
    rows = overflowed_rows(case) & ~f.rows.is_gradient & ~f.tensors.in_phase("optimizer")[f.rows.tensor]
    return counts(case, rows)


def values_overflowed(case, match):
    none = "no infinity reached a weight" in match[0]
    return Claim(
        {"tensors": len(values_that_overflowed(case))}, no_infinity_reached_a_weight=not none or not case.f.reached_weights
    )


# Flushing.


def flushed_tensors(case, is_gradient):
    f = case.f
    shares = f.share("flushed", case.scope & f.rows.used)
    return numpy.flatnonzero((shares > LIMIT) & f.tensors.is_plain & (f.tensors.is_gradient == is_gradient))


def little_of_norm(tensors_of, scope_of):
    """A pattern, and what its groups have to be: of tensors of which too little was flushed to matter, in nine of ten rows it was at most
    the part of the norm above which it counts as felt."""

    def recompute(case, match):
        f, tensors = case.f, tensors_of(case)
        part = max(f.format_of(i).felt for i in tensors)
        some = any((f.felt & f.rows.used & scope_of(case, i) & f.rows_of(i)).any() for i in tensors)
        few = not any(f.flush_matters(i, scope_of(case, i)) for i in tensors)
        return Claim({"part": general(100 * part, 6), "many": None}, so_many_rows=bool(match["many"]) == some and few)

    return r", but (?P<many>in nine of ten rows or more )?these were at most (?P<part>\S+)% of the norm\.", recompute


def flushed_gradients(case):
    matters = "and up to" in case.finding["title"]
    return [i for i in flushed_tensors(case, True) if case.f.flush_matters(i, case.scope) == matters]


def gradients_flushed(case, match):
    f, found = case.f, flushed_gradients(case)
    most = max((f.most_norm(i, case.scope) for i in found), default=0.0)
    return {"tensors": len(found), "norm": share(most)}


def flushed_place(case, tensor, _=None):
    r = case.f.rows
    return case.f.first_row((r.flushed > LIMIT * r.base) & r.used & r.rounding_known & case.f.rows_of(tensor))


def flushed_share(case, tensor, _):
    return case.f.share("flushed", case.scope & case.f.rows.used, tensor)


def flushed_values(case):
    f = case.f
    found = []
    for i in flushed_tensors(case, False):
        most = (
            f.tensors.role[i] in ("activation", "input")
            and f.tensors.phase[i] != "evaluation"
            and f.flush_matters(i, case.scope)
            and f.share("flushed", case.scope & f.rows.used, i) > 0.5
        )
        if most == (case.finding["code"] == "range.activations_flushed"):
            found.append(i)
    return found


def activations_flushed(case, match):
    found = flushed_values(case)
    return {"tensors": len(found), "norm": share(max(case.f.most_norm(i, case.scope) for i in found))}


def values_flushed(case, match):
    return {"tensors": len(flushed_values(case))}


# Gradients that vanish.


def first_roundings(case):
    rows = case.f.first_roundings
    return rows[case.scope[rows]]


def vanished(case):
    r = case.f.rows
    firsts = first_roundings(case)
    return firsts[(r.flushed[firsts] == r.base[firsts]) & ~r.fitted[firsts]]


def scale_had_come_down(case, match):
    """By the first step in which some gradient vanished."""
    s = case.f.steps
    step = int(case.f.rows.step[vanished(case)].min())
    first, then = float(s.scale_before[0]), float(s.scale_before[numpy.flatnonzero(s.step == step)[0]])
    return Claim({"first": scale(first), "then": scale(then)}, it_had=then < first)


def vanish(case, match):
    rows = vanished(case)
    by_tensor = numpy.bincount(case.f.rows.tensor[rows])
    worst = case.tensor_of(case.finding["evidence"][0])
    others = int((by_tensor > 0).sum()) - 1
    return Claim(
        {
            "some": len(rows),
            "all": len(first_roundings(case)),
            "tensor": case.first_name,
            "times": by_tensor[worst],
            "others": others,
        },
        all_are_named_or_counted=match["others"] is not None or others == 0,
        the_named_rounding_is_the_one_that_does_most=by_tensor[worst] == by_tensor.max(),
    )


def largest_exponent(case, tensor, _):
    r = case.f.rows
    return log2(float((r.largest / r.quantization_scale)[case.scope & case.f.rows_of(tensor)].max()))


VANISH_VALUES = {
    "backward_passes": lambda case, tensor, _: int((case.f.rows.tensor[vanished(case)] == tensor).sum()),
    "flushed": lambda case, tensor, _: case.f.share("flushed", case.scope, tensor),
    "largest": largest_exponent,
    "flushed_up_to": lambda case, tensor, _: math.log2(case.f.flushed_up_to(tensor)[1]),
    "made_after": lambda case, tensor, evidence: evidence["values"]["made_after"]["value"],  # a name, without an id
}


def vanish_place(case, tensor, _=None):
    rows = vanished(case)
    return int(rows[case.f.rows.tensor[rows] == tensor][0])


# Saturation.


def saturated_tensors(case):
    return counts(case, case.scope & (case.f.rows.saturated > 0))


def saturated(case, match):
    return {"tensors": len(saturated_tensors(case)), "elements": int(case.f.rows.saturated[case.scope].sum())}


SATURATED_VALUES = {
    "elements": lambda case, tensor, _: int(case.f.sums("saturated", case.scope)[tensor]),
    "saturated": lambda case, tensor, _: case.f.share("saturated", case.scope, tensor),
    "rounding": lambda case, tensor, _: case.f.rounding_of(tensor)[0],
    "largest": largest_exponent,
    "stored_as": lambda case, tensor, _: math.log2(case.f.format_of(tensor).largest),
}


def saturated_place(case, tensor, _=None):
    return case.f.first_row((case.f.rows.saturated > 0) & case.f.rows_of(tensor))


# Gradients that fit, or would not.


def headroom(case, tensor):
    f = case.f
    rows = case.scope & f.rows_of(tensor) & f.rows.has_values & ~f.rows.skipped & (f.rows.largest > 0)
    largest = float(f.rows.largest[rows].max(initial=0.0))
    return math.log2(f.format_of(tensor).largest / largest) if largest > 0 else math.inf


def fitting_gradients(case):
    f = case.f
    with_rows = counts(case, case.scope & f.rows.rounding_known & f.tensors.is_plain[f.rows.tensor] & f.rows.is_gradient)
    return [i for i in with_rows]


def quantized_that_fit(case):
    """The FP8 types of gradients, where none lost more than the limit."""
    f = case.f
    rows = case.scope & f.rows.is_gradient & f.tensors.is_quantized[f.rows.tensor]
    lost = any((f.share(name, rows) > LIMIT).any() for name in ("flushed", "overflowed"))
    return set() if lost else {f.format_of(i).name for i in counts(case, rows & (f.rows.base > 0))}


def bits_text(bits):
    return f"{bits:.1f}" if f"{bits:.1f}" != "-0.0" else "0.0"


def gradients_fit(case, match):
    f, tensors = case.f, fitting_gradients(case)
    lost = max(f.share("flushed", case.scope & f.rows.used, i) for i in tensors)
    names = {f.format_of(i).name for i in tensors}
    told = {"anything": lost == 0, "as much as 0.01%": 0 < lost < 1e-4}
    is_told = told[match["lost"]] if match["lost"] in told else share(lost).fits(match["lost"].removeprefix("more than "))
    quantized = quantized_that_fit(case)
    any_skipped = bool((overflowed_rows(case) & f.rows.is_gradient & f.rows.skipped).any())
    bits = min(headroom(case, i) for i in tensors)
    return Claim(
        {"tensors": len(tensors), "lost": None, "bits": Shown(bits, bits_text), "skipped": None, "types": None},
        the_types_are_these=set(match["types"].replace(", and ", " and ").split(" at ")[0].split(" and ")) == names | quantized,
        none_lost_more=is_told,
        steps_with_overflow_were_skipped=bool(match["skipped"]) == any_skipped,
    )


FIT_VALUES = {
    "headroom": lambda case, tensor, _: min(headroom(case, i) for i in fitting_gradients(case)),
    "flushed": lambda case, tensor, _: max(case.f.share("flushed", case.scope & case.f.rows.used, i) for i in fitting_gradients(case)),
}


def would_flush(case, tensor):
    """(at least, at most) the share of a gradient that FP16 would flush were it not scaled."""
    f = case.f
    rows = numpy.flatnonzero(case.scope & f.rows_of(tensor) & f.rows.has_values)
    up_to = flushed_up_to(FORMATS["f16"], *f.rounding_of(tensor, "f16"))
    scales = f.rows.scale[rows]
    least, most = f.up_to(rows, up_to[0] * scales)[0].sum(), f.up_to(rows, up_to[1] * scales)[1].sum()
    base = int(f.rows.finite_nonzero[rows].sum())
    return (int(least) / base, int(most) / base) if base else (0.0, 0.0)


def is_noise(case, tensor):
    """Whether the gradient of a bias is nothing but what the terms of its sum were rounded by, in every row."""
    return bool(case.f.noise[case.f.rows_of(tensor)].all())


def judged_gradients(case):
    f = case.f
    return [
        i
        for i in counts(case, case.scope)
        if f.tensors.is_computed[i] and f.tensors.is_float[i] and not f.tensors.stays_wide[i] and not is_noise(case, i)
    ]


def would_flush_tensors(case):
    return [i for i in judged_gradients(case) if would_flush(case, i)[0] > LIMIT]


def gradients_would_flush(case, match):
    return {"some": len(would_flush_tensors(case)), "all": len(judged_gradients(case))}


def served(case, tensor, _):
    """The forward op whose gradient it is, by what its op differentiates, and where that is a cast by what the cast read."""
    f = case.f
    ops = f.tables.ops
    kinds = ops.words("kind")
    op = int(numpy.flatnonzero(ops["id"] == ops["forward_id"][f.tensors.op[tensor]])[0])
    while kinds[op] == "cast":
        op = next(producer for number, producer, _ in f.trace.inputs_of(op) if number == 0)
    return f"{f.trace.text_of(ops['module'][op])} {f.trace.text_of(ops['name'][op])}".strip()


def cast_for(case, match):
    f, op = case.f, case.f.tensors.op[case.first_tensor]
    return Claim({"module": f.trace.text_of(f.tables.ops["module"][op])}, it_is_a_cast=f.tables.ops.words("kind")[op] == "cast")


RULES = {
    "range.nonfinite": Rule(ORIGIN_TEXT, NONFINITE_VALUES, nonfinite_place),
    "range.values_overflow": Rule(
        ORIGIN_TEXT
        + [
            (
                r"^(?P<tensors>\d+) tensors? other than gradients overflowed when rounded(?:, and no infinity reached a weight)?\.",
                values_overflowed,
            ),
            (r"(?:run|Keep) module (?P<module>\S+), which it was cast for, in FP32", cast_for),
        ],
        NONFINITE_VALUES
        | {
            "elements": overflow_elements,
            "overflowed": lambda case, tensor, _: case.f.share("became_infinite", case.scope, tensor),
        },
        gradients_overflow_place,
        lambda case: None if is_origin_finding(case) else values_that_overflowed(case),
    ),
    "range.gradients_overflow": Rule(
        ORIGIN_TEXT
        + [
            (
                r"^(?P<tensors>\d+) gradient tensors? overflowed in (?P<steps>\d+) steps? that (?:was|were) not skipped(?P<reached>, and "
                r"infinities reached the weights|; no (?:weight|gradient of a parameter) became infinite)?\.",
                kept,
            ),
            (r"^(?P<tensors>\d+) gradient tensors? overflowed, only in steps that the scaler skipped\.", only_skipped),
        ],
        NONFINITE_VALUES | {"steps": overflow_steps, "elements": overflow_elements},
        gradients_overflow_place,
        lambda case: (
            None
            if is_origin_finding(case)
            else (
                gradients_only_skipped(case)
                if "skipped." in case.finding["title"] and "not" not in case.finding["title"]
                else gradients_kept(case)
            )
        ),
    ),
    "range.gradients_flushed": Rule(
        [
            (
                r"^(?P<tensors>\d+) gradient tensors? lost more than 1% of the nonzero elements to zero when rounded, (?:and up to (?P<norm>\S+) of "
                r"the norm\.|but)",
                gradients_flushed,
            ),
            little_of_norm(flushed_gradients, lambda case, tensor: case.scope),
        ],
        {
            "flushed": flushed_share,
            "of_the_norm_at_most": lambda case, tensor, _: case.f.most_norm(tensor, case.scope),
            "gradient_of": served,
        },
        flushed_place,
        flushed_gradients,
    ),
    "range.gradients_vanish": Rule(
        [
            (
                r"^In (?P<some>\d+) of (?P<all>\d+) backward passes every nonzero gradient was flushed to zero at the first rounding, "
                r"(?:(?P<times>\d+) times )?in (?P<tensor>.+?)(?:, else in (?P<others>\d+) other tensors?)?: nothing",
                vanish,
            ),
            (r"^The loss scale had come down from (?P<first>\S+) to (?P<then>\S+) by then", scale_had_come_down),
        ],
        VANISH_VALUES,
        vanish_place,
        lambda case: counts_of_rows(case, vanished(case)),
    ),
    "range.activations_flushed": Rule(
        [
            (
                r"^(?P<tensors>\d+) tensors? of the forward pass lost more than half of the nonzero elements to zero when rounded, and up to "
                r"(?P<norm>\S+) of the norm\.",
                activations_flushed,
            )
        ],
        {"flushed": flushed_share},
        flushed_place,
        flushed_values,
    ),
    "range.clipping_hides_infinity": Rule(
        [
            (
                r"^(?P<tensors>\d+) gradient tensors? overflowed in (?P<steps>\d+) steps? that (?:was|were) not skipped(?P<reached>): clipping "
                r"by value made finite numbers of the infinities that reached it",
                clipped,
            )
        ],
        {"steps": overflow_steps, "elements": overflow_elements},
        overflow_place,
        gradients_kept,
    ),
    "range.values_flushed": Rule(
        [
            (
                r"^(?P<tensors>\d+) tensors? other than gradients lost more than 1% of the nonzero elements to zero when rounded\.",
                values_flushed,
            )
        ],
        {"flushed": flushed_share},
        flushed_place,
        flushed_values,
    ),
    "range.saturated": Rule(
        [(r"^(?P<tensors>\d+) tensors? held (?P<elements>\d+) finite values? beyond", saturated)],
        SATURATED_VALUES,
        saturated_place,
        saturated_tensors,
    ),
    "range.gradients_fit": Rule(
        [
            (
                r"^(?:(?P<skipped>In the steps that were not skipped t)|T)he gradients fit (?P<types>.+?): of (?P<tensors>\d+) gradient tensors?, none "
                r"lost (?P<lost>.+?) to zero, and the largest values leave (?P<bits>\S+) bits of headroom\.",
                gradients_fit,
            )
        ],
        FIT_VALUES,
    ),
    "range.gradients_would_flush": Rule(
        [(r"^In FP16 without a loss scale, (?P<some>\d+) of (?P<all>\d+) gradient tensors? would", gradients_would_flush)],
        {"flushed_in_fp16": lambda case, tensor, _: would_flush(case, tensor)},
        None,
        would_flush_tensors,
    ),
}


def counts_of_rows(case, rows):
    return numpy.unique(case.f.rows.tensor[rows])
