"""Ranges of values: what overflowed, was flushed or saturated."""

import math
import re

import numpy

from .beginnings import OF_PARAMETERS
from .formats import FORMATS, LIMIT, flushed_up_to
from .nonfinite_rules import NONFINITE_VALUES, begins, format_name, is_called, nonfinite_place
from .rules import Rule, log2, setting_of
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


def clipped(case, said):
    """Some op that clips by value read infinities in a step that was taken, and handed on none."""
    f, hid = case.f, False
    infinite = case.scope & ~f.rows.skipped & (f.rows.infinite > 0)
    for i in range(f.tensors.n):
        if f.tensors.phase[i] != "scaling" or f.tensors.function[i] != "clamp" or (infinite & f.rows_of(i)).any():
            continue
        for number, producer, slot in f.trace.inputs_of(f.tensors.op[i]):
            read = f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)]
            hid = hid or number == 0 and bool((infinite & f.rows_of(read)).any())
    rows = overflowed_rows(case) & f.rows.is_gradient & ~f.rows.skipped
    return Claim(
        {"gradients": len(gradients_kept(case)), "steps": len(numpy.unique(f.rows.step[rows]))},
        clipping_read_an_infinity_and_handed_on_none=hid,
        no_weight_became_infinite=not f.reached_weights,
        the_formats_are_these=formats_told(said) == formats_of(case, gradients_kept(case)),
    )


def gradients_only_skipped(case):
    f = case.f
    skipped = counts(case, overflowed_rows(case) & f.rows.is_gradient & f.rows.skipped)
    return numpy.setdiff1d(skipped, gradients_kept(case))


def told_with_others(case, said, tensors, numbers):
    """Of several tensors the one that overflowed most, and how many there are beside it."""
    others = said["others"]["others"] if said["others"] else 0
    return Claim(
        numbers | {"format": format_name(case.f, case.first_tensor)},
        it_is_the_first_of_the_evidence=is_called(said["place"], case.first_name),
        so_many_are_beside_it=others + 1 == len(tensors),
    )


def gradients_overflowed(case, said):
    f = case.f
    rows = overflowed_rows(case) & f.rows.is_gradient & ~f.rows.skipped
    return told_with_others(case, said, gradients_kept(case), {"steps": len(numpy.unique(f.rows.step[rows]))})


def gradients_taken_away(case, said):
    f = case.f
    of_parameters = f.tables.tensors.is_any("role", *OF_PARAMETERS)[f.rows.tensor] & ~f.rows.skipped
    return Claim(no_gradient_did=not (of_parameters & (f.rows.nonfinite > 0)).any())


def overflow_place(case, tensor, _=None):
    return case.f.first_row(overflowed_rows(case) & case.f.rows_of(tensor))


def overflow_steps(case, tensor, _):
    return len(numpy.unique(case.f.rows.step[overflowed_rows(case) & case.f.rows_of(tensor)]))


def overflow_elements(case, tensor, _):
    return int(case.f.sums("became_infinite", overflowed_rows(case))[tensor])


def gradients_overflow_place(case, tensor, _=None):
    return nonfinite_place(case, tensor) if begins(case) else overflow_place(case, tensor)


def values_that_overflowed(case):
    f = case.f
    rows = overflowed_rows(case) & ~f.rows.is_gradient & ~f.tensors.in_phase("optimizer")[f.rows.tensor]
    return counts(case, rows)


def values_overflowed(case, said):
    worst = case.first_tensor
    return told_with_others(
        case,
        said,
        values_that_overflowed(case),
        {"elements": overflow_elements(case, worst, None), "step": int(case.f.rows.step[overflow_place(case, worst)])},
    )


# What sentences say of tensors.


def place(case, said):
    """The tensor that the evidence names first, without its type."""
    told = {
        "tensor.gradient_of_parameter": ("parameter", "gradient"),
        "tensor.gradient_of_module": ("module", "op", "gradient"),
        "tensor.gradient_of_op": ("op", "gradient"),
        "tensor.parameter": ("parameter",),
        "tensor.op_of_module": ("module", "op"),
        "tensor.op": ("op",),
        "tensor.tensor": ("tensor",),
    }[said.id]
    words = " ".join(said[name] if name in said.values else name for name in told)
    return Claim({}, the_evidence_begins_with_it=re.sub(r" \((FP16|BF16|FP32|E4M3|E5M2)\)", "", case.first_name).removesuffix(" in evaluation") == words)


def formats_of(case, tensors):
    return {case.f.format_of(i).name.upper() for i in tensors}


def formats_told(said):
    return set(said["formats"])


def maximum(case, said):
    return {"largest": next(fmt.largest for fmt in FORMATS.values() if fmt.name.upper() == said["format"])}


# Flushing.


def flushed_tensors(case, is_gradient):
    f = case.f
    shares = f.share("flushed", case.scope & f.rows.used)
    return numpy.flatnonzero((shares > LIMIT) & f.tensors.is_plain & (f.tensors.is_gradient == is_gradient))


# By code, the tensors of sentences on norms, and of these the rows that count, where these are not all.
TENSORS_OF, ROWS_OF = {}, {}


def tensors_told(case):
    return TENSORS_OF[case.finding["code"]](case)


def rows_that_count(case, tensor):
    return ROWS_OF.get(case.finding["code"], lambda case, tensor: case.scope)(case, tensor)


def lost_norm(case, said):
    return {"norm": max(case.f.most_norm(i, rows_that_count(case, i)) for i in tensors_told(case))}


def little_norm(case, said):
    """Too little was flushed to matter: in nine of ten rows at most the part of the norm above which it counts as felt."""
    f, tensors = case.f, tensors_told(case)
    some = any((f.felt & f.rows.used & rows_that_count(case, i) & f.rows_of(i)).any() for i in tensors)
    few = not any(f.flush_matters(i, rows_that_count(case, i)) for i in tensors)
    return Claim(
        {"norm": max(f.format_of(i).felt for i in tensors)}, so_many_rows=few and some == (said.id == "norm.mostly_little")
    )


def each_lost(case, said):
    limit = 0.5 if case.finding["code"] == "range.activations_flushed" else LIMIT
    return {"tensors": len(tensors_told(case)), "limit": limit}


def flushed_gradients(case):
    matters = case.said("norm.most") is not None
    return [i for i in flushed_tensors(case, True) if case.f.flush_matters(i, case.scope) == matters]


def rounded(case, holds):
    """The tensors in 16 bits whose roundings were counted, of those for which it holds."""
    f = case.f
    return [i for i in counts(case, case.scope & f.rows.rounding_known & f.tensors.is_plain[f.rows.tensor]) if holds(i)]


def is_forward_value(case, tensor):
    return case.f.tensors.role[tensor] in ("activation", "input") and case.f.tensors.phase[tensor] != "evaluation"


def flushed_of(case, tensors):
    """Of a title about these: the worst of them is the one that is named."""
    worst = case.f.share("flushed", case.scope & case.f.rows.used, case.first_tensor)
    most = max(case.f.share("flushed", case.scope & case.f.rows.used, i) for i in tensors)
    return Claim({"flushed": worst}, the_named_tensor_lost_most=worst == most)


def gradients_flushed(case, said):
    found = flushed_gradients(case)
    claim = flushed_of(case, found)
    claim.update(gradients=len(found), all=len(fitting_gradients(case)))
    claim.holds["the_formats_are_these"] = formats_told(said) == formats_of(case, found)
    return claim


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
            is_forward_value(case, i)
            and f.flush_matters(i, case.scope)
            and f.share("flushed", case.scope & f.rows.used, i) > 0.5
        )
        if most == (case.finding["code"] == "range.activations_flushed"):
            found.append(i)
    return found


def values_flushed(case, said):
    found = flushed_values(case)
    of_forward = case.finding["code"] == "range.activations_flushed"
    every = rounded(case, lambda i: is_forward_value(case, i) if of_forward else not case.f.tensors.is_gradient[i])
    claim = flushed_of(case, found)
    claim.update(tensors=len(found), all=len(every))
    claim.holds["the_formats_are_these"] = formats_told(said) == formats_of(case, found)
    return claim


# Gradients that vanish.


def first_roundings(case):
    rows = case.f.first_roundings
    return rows[case.scope[rows]]


def vanished(case):
    r = case.f.rows
    firsts = first_roundings(case)
    return firsts[(r.flushed[firsts] == r.base[firsts]) & ~r.fitted[firsts]]


def scale_had_fallen(case, said):
    """By the first step in which some gradient vanished."""
    s = case.f.steps
    step = int(case.f.rows.step[vanished(case)].min())
    first, then = float(s.scale_before[0]), float(s.scale_before[numpy.flatnonzero(s.step == step)[0]])
    return Claim({"first": first, "scale": then}, it_had=then < first)


def all_vanish(case):
    f = case.f
    lost, base = f.sums("flushed", case.scope & f.rows.rounding_known), f.sums("base", case.scope & f.rows.rounding_known)
    return bool((lost == base)[f.tensors.is_gradient & f.tensors.is_plain].all())


def vanish(case, said):
    rows = vanished(case)
    by_tensor = numpy.bincount(case.f.rows.tensor[rows])
    passes = len(first_roundings(case))
    claim = Claim(
        {"vanished": len(rows), "passes": passes},
        the_named_rounding_is_the_one_that_does_most=by_tensor[case.first_tensor] == by_tensor.max(),
        all_gradients_do=(said.id == "range.gradients_vanish") == (all_vanish(case) and len(rows) == passes),
        the_formats_are_these=formats_told(said) == formats_of(case, numpy.flatnonzero(by_tensor)),
    )
    if said.id == "range.gradients_vanish.several":
        claim["times"] = by_tensor[case.first_tensor]
    if said.id == "range.gradients_vanish.some":
        claim.holds["it_is_one_tensor"] = (by_tensor > 0).sum() == 1
    return claim


def never_above(case, said):
    limit, largest = math.log2(case.f.flushed_up_to(case.first_tensor)[0]), largest_exponent(case, case.first_tensor, None)
    return Claim({"limit": limit, "largest": largest}, it_is_not_above=largest <= limit)


def largest_exponent(case, tensor, _):
    r = case.f.rows
    return log2(float((r.largest / r.quantization_scale)[case.scope & case.f.rows_of(tensor)].max()))


VANISH_VALUES = {
    "backward_passes": lambda case, tensor, _: int((case.f.rows.tensor[vanished(case)] == tensor).sum()),
    "flushed": lambda case, tensor, _: case.f.share("flushed", case.scope, tensor),
    "largest": largest_exponent,
    "flushed_up_to": lambda case, tensor, _: math.log2(case.f.flushed_up_to(tensor)[1]),
    "rounded_after": lambda case, tensor, evidence: evidence["values"]["rounded_after"]["value"],  # a name, without an id
}


def vanish_place(case, tensor, _=None):
    rows = vanished(case)
    return int(rows[case.f.rows.tensor[rows] == tensor][0])


# Saturation.


def saturated_tensors(case):
    return counts(case, case.scope & (case.f.rows.saturated > 0))


def saturated(case, said):
    f, found = case.f, saturated_tensors(case)
    claim = Claim(
        {"tensors": len(found), "values": int(f.rows.saturated[case.scope].sum())},
        the_modes_are_these=set(said["modes"]) == {f.rounding_of(i)[0] for i in found},
        the_formats_are_these={each["format"] for each in said["maxima"]} == formats_of(case, found),
    )
    if said.id == "range.saturated":
        claim["step"] = int(f.rows.step[saturated_place(case, case.first_tensor)])
    return claim


SATURATED_VALUES = {
    "elements": lambda case, tensor, _: int(case.f.sums("saturated", case.scope)[tensor]),
    "saturated": lambda case, tensor, _: case.f.share("saturated", case.scope, tensor),
    "rounding": lambda case, tensor, _: case.f.rounding_of(tensor)[0],
    "largest": largest_exponent,
    "stored_as": lambda case, tensor, _: case.f.format_of(tensor).largest,
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


def lost_phrase(what, most):
    """The id and the share of the phrase on what was lost at most."""
    if most == 0:
        return f"range.gradients_fit.no_{what}", None
    return (f"range.gradients_fit.{what}_below", 1e-4) if most < 1e-4 else (f"range.gradients_fit.{what}_at_most", most)


def gradients_fit(case, said):
    f, tensors = case.f, fitting_gradients(case)
    lost = max(f.share("flushed", case.scope & f.rows.used, i) for i in tensors)
    in_fp8 = bool(f.tensors.is_quantized[numpy.unique(f.rows.tensor)].any())
    tightest = min(tensors, key=lambda i: headroom(case, i))
    told = said["room"] is not None
    any_skipped = bool((overflowed_rows(case) & f.rows.is_gradient & f.rows.skipped).any())
    return Claim(
        {"gradients": len(tensors)},
        the_formats_are_these=formats_told(said) == formats_of(case, tensors),
        none_lost_more=(said["lost"].id, said["lost"].get("share")) == lost_phrase("underflow", lost),
        steps_with_overflow_were_skipped=(said["taken"] is not None) == any_skipped,
        the_room_is_told=told != (in_fp8 and f.tensors.dtype[tightest] == "bf16"),
    )


def no_headroom(case, said):
    tightest = min(fitting_gradients(case), key=lambda i: headroom(case, i))
    limit = case.f.format_of(tightest).largest
    return {"largest": limit * 2.0 ** -headroom(case, tightest), "limit": limit}


def fit_share(name):
    def of(case, tensor, _):
        return case.f.share(name, rows_that_count(case, tensor) & case.f.rows.used, tensor)

    return of


FIT_VALUES = {
    "headroom": lambda case, tensor, _: min(headroom(case, i) for i in fitting_gradients(case)),
    "flushed": fit_share("flushed"),
    "saturated": fit_share("overflowed"),
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


def gradients_would_flush(case, said):
    return {"some": len(would_flush_tensors(case)), "gradients": len(judged_gradients(case)), "limit": LIMIT}


def served(case, tensor, _):
    """The forward op whose gradient it is, by what its op differentiates, and where that is a cast by what the cast read."""
    f = case.f
    ops = f.tables.ops
    kinds = ops.words("kind")
    op = int(numpy.flatnonzero(ops["id"] == ops["forward_id"][f.tensors.op[tensor]])[0])
    while kinds[op] == "cast":
        op = next(producer for number, producer, _ in f.trace.inputs_of(op) if number == 0)
    return f"{f.trace.text_of(ops['module'][op])} {f.trace.text_of(ops['name'][op])}".strip()


def nothing(case, said):
    """Digits that stand in the words, or in phrases that have rules of their own."""
    return {}


# By the ids of templates.
SAID = {
    **{
        f"tensor.{name}": place
        for name in ("gradient_of_parameter", "gradient_of_module", "gradient_of_op", "parameter", "op_of_module", "op", "tensor")
    },
    "format.maximum": maximum,
    "norm.most": lost_norm,
    "norm.little": little_norm,
    "norm.mostly_little": little_norm,
    "norm.each_lost": each_lost,
    "range.activations_flushed": values_flushed,
    "range.clipping_hides_infinity": clipped,
    "range.clipping_hides_infinity.used": nothing,
    "range.gradients_fit": gradients_fit,
    "range.gradients_fit.headroom": lambda case, said: {"headroom": min(headroom(case, i) for i in fitting_gradients(case))},
    "range.gradients_fit.no_headroom": no_headroom,
    # The sentence has a rule for all of what it says was lost.
    **{f"range.gradients_fit.{what}_{how}": lambda case, said: {"share": None} for what in ("underflow", "saturation") for how in ("below", "at_most")},
    "range.gradients_flushed": gradients_flushed,
    "range.gradients_vanish": vanish,
    "range.gradients_vanish.never_above": never_above,
    "range.gradients_vanish.several": vanish,
    "range.gradients_vanish.some": vanish,
    "range.gradients_would_flush": gradients_would_flush,
    "range.saturated": saturated,
    "range.saturated.somewhere": saturated,
    "range.values_flushed": values_flushed,
    "range.values_flushed.limit": lambda case, said: {"limit": LIMIT},
    "advice.scale_had_fallen": scale_had_fallen,
    "advice.lower_scale_for_gradients": nothing,
    "advice.lower_scale_that_saturates": nothing,
    "setting.scale": lambda case, said: {"value": float(case.f.setting(said["setting"]["setting"]))},
    "advice.scale_or_run_in_bf16": nothing,
    "advice.scale_or_run_in_fp32": nothing,
    "advice.scale_the_loss": nothing,
    "advice.scale_the_loss_or_use_bf16": nothing,
}

RULES = {
    "range.nonfinite": Rule(values=NONFINITE_VALUES, place=nonfinite_place),
    "range.values_overflow": Rule(
        values=NONFINITE_VALUES
        | {
            "elements": overflow_elements,
            "overflowed": lambda case, tensor, _: case.f.share("became_infinite", case.scope, tensor),
        },
        place=gradients_overflow_place,
        all_of=lambda case: None if begins(case) else values_that_overflowed(case),
    ),
    "range.gradients_overflow": Rule(
        values=NONFINITE_VALUES | {"steps": overflow_steps, "elements": overflow_elements},
        place=gradients_overflow_place,
        all_of=lambda case: (
            None if begins(case) else gradients_only_skipped(case) if case.said("range.gradients_overflow.skipped") else gradients_kept(case)
        ),
    ),
    "range.gradients_flushed": Rule(
        [],
        {
            "flushed": flushed_share,
            "of_the_norm_at_most": lambda case, tensor, _: case.f.most_norm(tensor, case.scope),
            "gradient_of": served,
        },
        flushed_place,
        flushed_gradients,
    ),
    "range.gradients_vanish": Rule(
        [],
        VANISH_VALUES,
        vanish_place,
        lambda case: counts_of_rows(case, vanished(case)),
    ),
    "range.activations_flushed": Rule(
        [],
        {"flushed": flushed_share},
        flushed_place,
        flushed_values,
    ),
    "range.clipping_hides_infinity": Rule(
        [],
        {"steps": overflow_steps, "elements": overflow_elements},
        overflow_place,
        gradients_kept,
    ),
    "range.values_flushed": Rule(
        [],
        {"flushed": flushed_share},
        flushed_place,
        flushed_values,
    ),
    "range.saturated": Rule(
        [],
        SATURATED_VALUES,
        saturated_place,
        saturated_tensors,
    ),
    "range.gradients_fit": Rule([], FIT_VALUES),
    "range.gradients_would_flush": Rule(
        [],
        {"flushed_in_fp16": lambda case, tensor, _: would_flush(case, tensor)},
        None,
        would_flush_tensors,
    ),
}


TENSORS_OF |= {code: RULES[code].all_of for code in ("range.gradients_flushed", "range.activations_flushed")}


def counts_of_rows(case, rows):
    return numpy.unique(case.f.rows.tensor[rows])


SAID |= {
    "range.values_overflow": values_overflowed,
    "range.values_overflow.harmless": lambda case, said: Claim(no_Inf_reached_a_weight=not case.f.reached_weights),
    "range.gradients_overflow": gradients_overflowed,
    "range.gradients_overflow.skipped": lambda case, said: told_with_others(case, said, gradients_only_skipped(case), {}),
    "range.gradients_overflow.reached_weights": lambda case, said: Claim(it_did=case.f.reached_weights),
    "range.gradients_overflow.no_weight": lambda case, said: Claim(none_did=not case.f.reached_weights),
    "range.gradients_overflow.taken_away": gradients_taken_away,
    # Held to the traces with the sentence that it stands in.
    "place.and_others": lambda case, said: {"others": None},
} | dict.fromkeys(
    (
        "advice.begin_with_lower_scale",
        "advice.enable_dynamic_scale",
        "advice.lower_floor_on_overflow",
        "advice.lower_loss_factor",
        "advice.lower_loss_factor_of_sgd",
        "advice.make_scale_dynamic",
        "advice.or_bf16",
        "advice.scale_falls_faster",
    ),
    lambda case, said: {},
)
