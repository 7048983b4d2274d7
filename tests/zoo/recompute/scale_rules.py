"""The loss scale: its history, and which scales fit."""

import math

import numpy

from .fitting import NONE_ABOVE, NONE_BELOW
from .formats import LIMIT
from .rules import Rule
from .sentences import AtLeast, Bounds, Claim, power


def scale_bounds(bounds, loose=False):
    lower, upper = bounds
    return Bounds(
        0.0 if lower == NONE_BELOW else math.ldexp(1, int(lower)),
        math.inf if upper == NONE_ABOVE else math.ldexp(1, int(upper)),
        loose,
    )


def scaled_steps(case):
    s = case.f.steps
    return numpy.ones(s.n, bool) if case.f.trace.run("dynamic_loss_scale") else (s.scale_before != 1) | (s.scale_after != 1)


ZONES = {"scale.below_100": lambda x: x < 100, "scale.below_1000": lambda x: x < 1000, "scale.above_100000": lambda x: x > 100000}
LIMITS = {"scale.below_100": 100, "scale.below_1000": 1000, "scale.above_100000": 100000}


def inside(case):
    """The steps whose scale stood where the finding says."""
    return scaled_steps(case) & ZONES[case.finding["code"]](case.f.steps.scale_before)


def zone(case, said):
    return {
        "limit": LIMITS[case.finding["code"]],
        "steps": inside(case).sum(),
        "all": case.f.steps.n,
        "share": inside(case).sum() / case.f.steps.n,
    }


def skipped_inside(case, *_):
    return int((inside(case) & case.f.steps.skipped).sum())


ZONE_VALUES = {
    "steps": lambda case, *_: int(inside(case).sum()),
    "skipped_steps": skipped_inside,
    "lowest_scale": lambda case, *_: lowest(case.f),
    "highest_scale": lambda case, *_: highest(case.f),
}


def lowest(f):
    return float(min(f.steps.scale_before.min(), f.steps.scale_after.min()))


def highest(f):
    return float(max(f.steps.scale_before.max(), f.steps.scale_after.max()))


def saturates(case, said):
    f = case.f
    above = f.rows.scale > (100000 if case.finding["code"] == "scale.above_100000" else 0)
    return Claim(gradients_saturated=bool(((f.rows.saturated > 0) & f.rows.is_gradient & above).any()))


def began_low(case, said):
    s = case.f.steps
    return Claim(
        {"scale": float(s.scale_before[0])},
        no_step_was_skipped=not s.skipped.any(),
        it_is_dynamic_or_not=(said.id == "scale.began_low_and_grows") == bool(case.f.trace.run("dynamic_loss_scale")),
    )


def skips(case, said):
    s = case.f.steps
    return {"skipped": s.skipped.sum(), "steps": s.n, "share": s.skipped.sum() / s.n}


def none_taken(case, said):
    s = case.f.steps
    return Claim({"steps": s.n} if s.n > 1 else {}, every_step_was_skipped=bool(s.skipped.all()))


def collapsed(case, said):
    s = case.f.steps
    fell = {"highest": highest(case.f)} if said.id == "scale.collapse" else {}
    return Claim(
        {"steps": case.f.trailing_skips(), "all": s.n, "scale": float(s.scale_after[-1])} | fell,
        it_fell_or_stayed=bool(fell) == (s.scale_after[-1] < highest(case.f)),
    )


def began_too_high(case, said):
    s, leading = case.f.steps, case.f.leading_skips()
    first, then = float(s.scale_before[0]), float(s.scale_after[leading - 1])
    return Claim({"leading": leading, "from": first, "to": then}, the_scale_came_down=then < first)


def settled(case, said):
    s, leading = case.f.steps, case.f.leading_skips()
    skipped, steps = s.skipped.sum() - leading, s.n - leading
    return Claim(
        {"skipped": skipped, "steps": steps, "share": skipped / steps}, it_says_what_went_before=bool(said["search"]) == (leading > 0)
    )


def largest_without_overflow(case):
    s, fitting = case.f.steps, case.fitting.largest
    largest = float(max(scale for scale in s.scale_before if scale < s.scale_before[s.skipped].min(initial=math.inf)))
    return min(largest, math.ldexp(1, int(fitting[0]))) if fitting and fitting[0] == fitting[1] else largest


def grows(case, said):
    run = case.f.trace.run
    return Claim(
        it_doubles=said["grows"].id != "scale.doubles" or run("growth_factor") == 2,
        it_grows_after_each_clean_step=said["interval"].id != "scale.clean_step" or run("growth_interval") == 1,
    )


def overflows(case, said):
    """What most skipped steps had their first NaN or Inf in, and all of what was to blame for some, are gradients that overflow."""
    f, found = case.f, blamed(case)
    worst = max(found, key=found.get)
    rows = {tensor: f.rows_of(tensor) & (f.rows.overflowed > 0) for tensor in found}
    name = {} if said.get("parameter") is None else {"parameter": f.trace.text_of(f.tables.tensors["parameter"][worst])}
    return Claim(
        name,
        these_are_gradients_that_overflow=all(f.tensors.is_gradient[tensor] and rows[tensor].any() for tensor in found),
        it_is_the_only_one_or_not=(len(found) > 1) == ("mostly" in said.id),
        it_is_most_of_them=2 * found[worst] > f.steps.skipped.sum(),
    )


def blamed(case):
    """By tensor, how many skipped steps had their first NaN or infinity in it."""
    f = case.f
    rows = f.rows.nonfinite > 0
    firsts = {}
    for row in numpy.flatnonzero(rows & f.rows.skipped):
        firsts.setdefault(int(f.rows.step[row]), int(f.rows.tensor[row]))
    found = {}
    for tensor in firsts.values():
        found[tensor] = found.get(tensor, 0) + 1
    return found


def skipped_by(case, tensor, _):
    return blamed(case).get(tensor, 0)


def first_skipped(case):
    """Of no skipped step the first."""
    s = case.f.steps
    return int(s.step[s.skipped][0]) if s.skipped.any() else int(s.step[0])


def first_skipped_after_growth(case):
    s = case.f.steps
    grown = numpy.flatnonzero(s.scale_after > s.scale_before)[0]
    return int(s.step[grown:][s.skipped[grown:]][0])


# Which scales fit.


def judged_scale(f):
    """The last one, or that with which the run broke."""
    judged = f.steps.scale_after[~f.steps.broken]
    return float(judged[-1]) if judged.size else 1.0


def largest_that_fits(case, said):
    f, most, is_set_back = case.f, case.fitting.largest[1], said.id == "scale.over_scaled.set_back"
    scale = float(f.steps.scale_before[0]) if is_set_back else judged_scale(f)
    return Claim(
        {"scale": scale, "largest": math.ldexp(1, int(most))},
        the_scale_is_fixed_or_not=(said.id == "scale.over_scaled") == bool(f.trace.run("dynamic_loss_scale")),
        it_is_too_large=math.log2(scale) > most,
    )


def too_small(case, said):
    judged, fit = judged_scale(case.f), case.fitting
    return Claim(
        {"scale": judged, "flushed": worst_flushed(case)},
        gradients_are_flushed=worst_flushed(case) > LIMIT,
        a_scale_fits=not fit.none_fits,
        the_scale_is_too_small=judged < math.ldexp(1, int(fit.smallest[0])),
    )


def smallest(case):
    return scale_bounds(case.fitting.smallest, case.fitting.is_loose)


def none_fits(case, said):
    fit = case.fitting
    return Claim(
        {"smallest": AtLeast(math.ldexp(1, int(fit.smallest[0])), fit.is_loose), "largest": math.ldexp(1, int(fit.largest[1]))},
        no_scale_fits=fit.none_fits,
        **broke(case, said),
    )


def some_fits(case, said):
    return Claim({"smallest": smallest(case), "largest": scale_bounds(case.fitting.largest)}, **broke(case, said))


def broke(case, said):
    return {"steps_are_named_where_the_run_broke": "judged" not in said.values or bool(said["judged"]) == case.f.steps.is_broken}


def hidden(case, said):
    fit, f = case.fitting, case.f
    tensors = numpy.unique(f.rows.tensor[fit.asked_in & fit.hidden])
    return {"hidden": fit.hidden_steps, "steps": f.steps.n, "gradients": sum(f.tensors.is_computed[i] for i in tensors), "limit": LIMIT}


def rows_flushed(case, tensor, _):
    f = case.f
    role = f.tensors.role[tensor] == "activation_gradient"
    return int((case.fitting.lost_too_much[0] & f.rows_of(tensor)).sum()) if role else 0


def smallest_value(case, tensor, _):
    return smallest(case)


def stands_at_floor(case, said):
    s, most = case.f.steps, case.fitting.largest[1]
    return Claim(
        {"floor": float(s.scale_after[-1]), "largest": math.ldexp(1, int(most))},
        it_is_the_floor=float(s.scale_after[-1]) <= float(case.f.setting("scaler.floor")),
        it_is_too_large=math.log2(float(s.scale_before[-1])) > most,
        all_was_skipped=bool(s.skipped[-10:].all()),
    )


def largest_value(case, tensor, _):
    return scale_bounds(case.fitting.largest)


def worst_flushed(case, *_):
    f = case.f
    shares = f.share("flushed", f.rows.judged & f.rows.used)
    return float(
        max(
            (
                shares[i]
                for i in range(f.tensors.n)
                if f.tensors.is_gradient[i] and f.tensors.is_plain[i] and shares[i] > 0 and f.flush_matters(i, f.rows.judged)
            ),
            default=0.0,
        )
    )


# Of the advice on flushed gradients, which is about those that matter.
FLUSHED_ADVICE = {
    "advice.no_scale_keeps_gradients": lambda case, said: {
        "smallest": AtLeast(math.ldexp(1, int(felt_smallest(case)[0])), case.fitting.is_loose),
        "largest": math.ldexp(1, int(case.fitting.largest[1])),
    },
    "advice.gradients_need_scale_of_at_least": lambda case, said: {
        "scale": AtLeast(math.ldexp(1, int(felt_smallest(case)[0])), case.fitting.is_loose)
    },
    "advice.scale_keeps_gradients": lambda case, said: {"scale": math.ldexp(1, int(felt_smallest(case)[1]))},
    "advice.largest_scale_that_fits": lambda case, said: {"scale": scale_bounds(case.fitting.largest)},
    "advice.scale_is": lambda case, said: Claim({"scale": highest(case.f)}, it_stayed=lowest(case.f) == highest(case.f)),
    "advice.gradients_need_larger_scale": lambda case, said: {},
    "advice.scale_is_set_to": lambda case, said: Claim({}, it_stayed=lowest(case.f) == highest(case.f)),
    "advice.scale_varies": lambda case, said: {"lowest": lowest(case.f), "highest": highest(case.f)},
}


def felt_smallest(case):
    f = case.f
    shares = f.share("flushed", f.rows.judged & f.rows.used)
    felt = [
        i
        for i in range(f.tensors.n)
        if f.tensors.is_gradient[i] and f.tensors.is_plain[i] and shares[i] > LIMIT and f.flush_matters(i, f.rows.judged)
    ]
    found = [case.fitting.smallest_of(i) for i in felt]
    return max(b[0] for b in found if b), max(b[1] for b in found if b)


def steep_growth(case, said):
    """How many backoffs undo one growth."""
    run = case.f.trace.run
    backoffs = math.log(run("growth_factor")) / -math.log(run("backoff_factor"))
    return Claim({"growth": run("growth_factor"), "backoffs": backoffs}, it_is_more_than_two=backoffs > 2)


def clean_steps(case):
    """Since the last one that changed the scale or was skipped."""
    s = case.f.steps
    changed = numpy.flatnonzero(s.skipped | (s.scale_before != s.scale_after))
    return s.n - (int(changed[-1]) + 1 if changed.size else 0)


# By the ids of templates.
SAID = {
    "scale.stood_below": zone,
    "scale.stood_above": zone,
    "scale.stood.skipped": lambda case, said: {"skipped": skipped_inside(case)},
    "scale.began_low": began_low,
    "scale.began_low_and_grows": began_low,
    "scale.started_low": lambda case, said: {"scale": case.f.steps.scale_before[0]},
    "scale.first_nonfinite": lambda case, said: {"skipped": max(blamed(case).values()), "all": case.f.steps.skipped.sum()},
    "advice.smaller_scale_keeps_gradients": saturates,
    "scale.no_step_taken": none_taken,
    "scale.no_step_taken.only_one": none_taken,
    "advice.scale_comes_down": lambda case, said: {
        "first": float(case.f.steps.scale_before[0]),
        "last": float(case.f.steps.scale_after[-1]),
    },
    "advice.losses_were_nonfinite": lambda case, said: {"step": case.f.steps.broken_from},
    "advice.lower_scale_floor": stands_at_floor,
    "scale.collapse": collapsed,
    "scale.collapse.stayed": collapsed,
    "scale.backoffs": skips,
    "scale.backoffs.began_too_high": began_too_high,
    "scale.steep_growth": steep_growth,
    "advice.grow_by_less": lambda case, said: Claim(),
    "scale.thrashing": settled,
    "scale.thrashing.mechanism": grows,
    "scale.grows_by": lambda case, said: {"factor": case.f.trace.run("growth_factor")},
    "scale.clean_steps": lambda case, said: {"steps": int(case.f.trace.run("growth_interval"))},
    "scale.parameter_overflows": overflows,
    "scale.mostly_parameter_overflows": overflows,
    "scale.tensor_overflows": overflows,
    "scale.mostly_tensor_overflows": overflows,
    "advice.set_growth_interval": lambda case, said: {},
    "advice.raise_growth_interval": lambda case, said: {},
    "advice.cap_at": lambda case, said: {"cap": largest_without_overflow(case)},
    "scale.over_scaled": largest_that_fits,
    "scale.over_scaled.fixed": largest_that_fits,
    "scale.over_scaled.set_back": largest_that_fits,
    "scale.over_scaled.or_sooner": lambda case, said: Claim(less_may_overflow=case.fitting.largest[0] < case.fitting.largest[1]),
    "scale.over_scaled.skipped": skips,
    "scale.over_scaled.saturates": saturates,
    "advice.smaller_or_dynamic_scale": lambda case, said: {"largest": math.ldexp(1, int(case.fitting.largest[1]))},
    "advice.much_smaller_or_dynamic_scale": lambda case, said: Claim(
        {"largest": math.ldexp(1, int(case.fitting.largest[1]))}, it_is_a_bound=case.fitting.largest[0] < case.fitting.largest[1]
    ),
    "advice.scale_at_most": lambda case, said: {"largest": math.ldexp(1, int(case.fitting.largest[1]))},
    "advice.scale_below": lambda case, said: Claim(
        {"largest": math.ldexp(1, int(case.fitting.largest[1]))},
        the_run_began_above=float(case.f.tables.steps["scale_before"][0]) > math.ldexp(1, int(case.fitting.largest[1])),
    ),
    "scale.under_scaled": too_small,
    "scale.under_scaled.smallest": lambda case, said: {"smallest": smallest(case)},
    "scale.no_scale_fits": none_fits,
    "scale.none_would_fit": none_fits,
    "scale.would_fit": some_fits,
    "scale.judged_before": lambda case, said: {"step": case.f.steps.broken_from},
    "scale.missing": lambda case, said: {"flushed": worst_flushed(case)},
    "scale.fit_hidden": hidden,
    "scale.stalled": lambda case, said: {"scale": float(case.f.steps.scale_after[-1]), "steps": clean_steps(case)},
    "scale.stalled.interval": lambda case, said: {"interval": int(case.f.trace.run("growth_interval"))},
}

RULES = {
    "scale.below_100": Rule(values=ZONE_VALUES),
    "scale.below_1000": Rule(values=ZONE_VALUES),
    "scale.above_100000": Rule(values=ZONE_VALUES),
    "scale.no_step_taken": Rule(values={"skipped_steps": skipped_by}),
    "scale.collapse": Rule(values={"skipped_steps": skipped_by}),
    "scale.backoffs": Rule(values={"skipped_steps": skipped_by}, first=first_skipped),
    "scale.thrashing": Rule(values={"skipped_steps": skipped_by}, first=first_skipped_after_growth),
    "scale.over_scaled": Rule(values={"skipped_steps": skipped_by, "largest_fitting_scale": largest_value}, first=first_skipped),
    "scale.under_scaled": Rule(values={"largest_fitting_scale": largest_value, "smallest_fitting_scale": smallest_value}),
    "scale.no_scale_fits": Rule(values={"largest_fitting_scale": largest_value, "smallest_fitting_scale": smallest_value}),
    "scale.none": Rule(),
    "scale.missing": Rule(values={"flushed_of_the_worst_gradient": worst_flushed}),
    "scale.fit_hidden": Rule(values={"rows_flushed": rows_flushed}),
    "scale.stalled": Rule(),
}

FACTS = {
    "steps": lambda case: case.f.steps.n,
    "dynamic_loss_scale": lambda case: bool(case.f.trace.run("dynamic_loss_scale")),
    "first_scale": lambda case: float(case.f.steps.scale_before[0]),
    "final_scale": lambda case: float(case.f.steps.scale_after[-1]),
    "lowest_scale": lambda case: lowest(case.f),
    "highest_scale": lambda case: highest(case.f),
    "skipped_steps": lambda case: int(case.f.steps.skipped.sum()),
    "largest_fitting_scale": lambda case: fact(case, case.fitting.largest),
    "smallest_fitting_scale": lambda case: fact(case, case.fitting.smallest, case.fitting.is_loose),
    "fitting_scales_for": lambda case: (
        ("fp16" if case.fitting.what_if else "the recorded types")
        if judges(case)
        else "none: no gradient has less range than FP32"
    ),
}


def judges(case):
    f = case.f
    return bool(case.fitting.what_if) or any(f.tensors.is_computed[i] and f.tensors.dtype[i] == "f16" for i in range(f.tensors.n))


def fact(case, bounds, loose=False):
    if not judges(case) or bounds is None or bounds == (NONE_BELOW, NONE_ABOVE):
        return None
    return scale_bounds(bounds, loose)
