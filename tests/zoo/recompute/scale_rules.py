"""The loss scale: its history, and which scales fit."""

import math

import numpy

from .fitting import NONE_ABOVE, NONE_BELOW
from .formats import LIMIT
from .rules import Rule
from .sentences import AtLeast, Bounds, Claim, general, power, scale


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


ZONES = {"below 100": lambda x: x < 100, "below 1000": lambda x: x < 1000, "above 100000": lambda x: x > 100000}


def zone(case, match):
    s = case.f.steps
    inside = scaled_steps(case) & ZONES[match["zone"]](s.scale_before)
    return Claim({"zone": None, "some": inside.sum(), "all": s.n, "skipped": (inside & s.skipped).sum()})


def zone_values(text):
    def inside(case):
        return scaled_steps(case) & ZONES[text](case.f.steps.scale_before)

    return {
        "steps": lambda case, *_: int(inside(case).sum()),
        "skipped_steps": lambda case, *_: int((inside(case) & case.f.steps.skipped).sum()),
        "lowest_scale": lambda case, *_: lowest(case.f),
        "highest_scale": lambda case, *_: highest(case.f),
    }


def lowest(f):
    return float(min(f.steps.scale_before.min(), f.steps.scale_after.min()))


def highest(f):
    return float(max(f.steps.scale_before.max(), f.steps.scale_after.max()))


def saturated_above(case, match):
    f = case.f
    return Claim(
        gradients_saturated_at_such_a_scale=bool(((f.rows.saturated > 0) & f.rows.is_gradient & (f.rows.scale > 100000)).any())
    )


ZONE_TEXT = [
    (
        r"^The loss scale was (?P<zone>below 1000?|above 100000) in (?P<some>\d+) of (?P<all>\d+) steps?; (?P<skipped>\d+) of these (?:was|were) "
        r"skipped\.",
        zone,
    ),
    (r"Gradients overflowed, and the rounding mode kept them", saturated_above),
    (
        r"Nothing overflowed: it began at (?P<scale>\S+?)[,.]( and grows after each growth interval\.)?",
        lambda case, match: Claim(
            {"scale": scale(float(case.f.steps.scale_before[0]))}, no_step_was_skipped=not case.f.steps.skipped.any()
        ),
    ),
]


def none_taken(case, match):
    s = case.f.steps
    return Claim({"all": s.n}, every_step_was_skipped=bool(s.skipped.all()))


def collapsed(case, match):
    return {"steps": case.f.trailing_skips(), "scale": scale(float(case.f.steps.scale_after[-1]))}


def backoffs(case, match):
    s = case.f.steps
    leading = case.f.leading_skips()
    came_down = match["leading"] is None or (leading < s.n and s.scale_before[leading] < s.scale_before[0])
    return Claim(
        {"some": s.skipped.sum(), "all": s.n, "leading": leading, "scale": scale(float(s.scale_before[0]))},
        the_scale_came_down=came_down,
    )


def settled(case, said):
    s, leading = case.f.steps, case.f.leading_skips()
    return {"skipped": s.skipped.sum() - leading, "steps": s.n - leading}


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


def largest_that_fits(case, match):
    f = case.f
    return Claim(
        {"scale": scale(judged_scale(f)), "largest": scale_bounds(case.fitting.largest), "fixed": None},
        the_scale_is_fixed=match["fixed"] is None or not f.trace.run("dynamic_loss_scale"),
    )


def smallest_that_fits(case, match):
    fit = case.fitting
    judged = judged_scale(case.f)
    return Claim(
        {"scale": scale(judged), "smallest": scale_bounds(fit.smallest, fit.is_loose)},
        gradients_are_flushed=worst_flushed(case) > LIMIT,
        a_scale_fits=not fit.none_fits,
        the_scale_is_too_small=judged < math.ldexp(1, int(fit.smallest[0])),
    )


def none_fits(case, match):
    fit = case.fitting
    return Claim(
        {
            "least": AtLeast(math.ldexp(1, int(fit.smallest[0])), fit.is_loose),
            "most": power(int(fit.largest[1])),
            "step": case.f.steps.broken_from,
            "types": None,
        },
        no_scale_fits=fit.none_fits,
    )


def some_fits(case, match):
    fit = case.fitting
    return Claim(
        {
            "smallest": scale_bounds(fit.smallest, fit.is_loose),
            "largest": scale_bounds(fit.largest),
            "step": case.f.steps.broken_from,
            "types": None,
        },
        steps_are_named_where_the_run_broke=bool(match["step"]) == case.f.steps.is_broken,
    )


def hidden(case, match):
    fit, f = case.fitting, case.f
    tensors = numpy.unique(f.rows.tensor[fit.asked_in & fit.hidden])
    return {"steps": fit.hidden_steps, "all": f.steps.n, "tensors": sum(f.tensors.is_computed[i] for i in tensors)}


def rows_flushed(case, tensor, _):
    f = case.f
    role = f.tensors.role[tensor] == "activation_gradient"
    return int((case.fitting.lost_too_much[0] & f.rows_of(tensor)).sum()) if role else 0


def smallest_value(case, tensor, _):
    return scale_bounds(case.fitting.smallest, case.fitting.is_loose)


def stands_at_floor(case, match):
    s, most = case.f.steps, case.fitting.largest[1]
    return Claim(
        {"floor": scale(float(s.scale_after[-1])), "most": power(int(most))},
        it_is_the_floor=float(s.scale_after[-1]) <= float(case.f.setting("scaler.floor")),
        it_is_too_large=math.log2(float(s.scale_before[-1])) > most,
        all_was_skipped=bool(s.skipped[-10:].all()),
    )


STANDS_AT_FLOOR = (
    r"^The loss scale may fall no further than (?P<floor>\S+)(?: \([\w.]+\))?, and the gradients bear (?P<most>\S+) at most: lower that floor\.$",
    stands_at_floor,
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


NONE_FITS = (
    r"no single scale fits: one gradient needs at least (?P<least>\S+?), another overflows above (?P<most>\S+?)(?:\.$|, judged by the "
    r"steps before step (?P<step>\d+)\.)"
)
SOME_FITS = (
    r"the smallest fitting scale is (?P<smallest>(?:at least )?\S+(?: to \S+)?) and the largest (?P<largest>(?:at most )?\S+?(?: to \S+?)?)"
    r"(?:\.$|, judged by the steps before step (?P<step>\d+)\.)"
)
UNSCALED = [(NONE_FITS, none_fits), (SOME_FITS, some_fits)]

# Of the advice on flushed gradients, which is about those that matter.
FLUSHED_ADVICE = [
    (
        r"No single loss scale keeps them: it would have to be at least (?P<least>\S+), and the largest gradients overflow above (?P<most>\S+)\.",
        lambda case, match: {
            "least": AtLeast(math.ldexp(1, int(felt_smallest(case)[0])), case.fitting.is_loose),
            "most": power(int(case.fitting.largest[1])),
        },
    ),
    (
        r"They need a loss scale of at least (?P<least>[^,;]+?)[,;.]",
        lambda case, match: {"least": AtLeast(math.ldexp(1, int(felt_smallest(case)[0])), case.fitting.is_loose)},
    ),
    (r"A loss scale of (?P<least>[^,;]+?) keeps them", lambda case, match: {"least": power(int(felt_smallest(case)[1]))}),
    (r"the largest that fits is (?P<most>(?:at most )?\S+?)\.", lambda case, match: {"most": scale_bounds(case.fitting.largest)}),
]


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


def steep_growth(case, match):
    """How many backoffs undo one growth."""
    run = case.f.trace.run
    backoffs = math.log(run("growth_factor")) / -math.log(run("backoff_factor"))
    return Claim({"backoffs": general(backoffs, 3)}, it_is_more_than_two=backoffs > 2)


STEEP_GROWTH = (r"one growth is as much as (?P<backoffs>\S+) backoffs", steep_growth)


# By the ids of templates.
SAID = {"scale.thrashing": settled}

RULES = {
    "scale.below_100": Rule(ZONE_TEXT, zone_values("below 100")),
    "scale.below_1000": Rule(ZONE_TEXT, zone_values("below 1000")),
    "scale.above_100000": Rule(ZONE_TEXT, zone_values("above 100000")),
    "scale.no_step_taken": Rule(
        [
            STANDS_AT_FLOOR,
            (r"^No step was taken: all (?P<all>\d+) steps were skipped", none_taken),
            (
                r"The loss scale was still coming down, from (?P<first>\S+) to (?P<last>\S+?): start with a smaller one, or train longer"
                r"(?P<unless>, unless|\.)",
                lambda case, match: {
                    "first": scale(float(case.f.steps.scale_before[0])),
                    "last": scale(float(case.f.steps.scale_after[-1])),
                    "unless": None,
                },
            ),
            (
                r"from step (?P<step>\d+) on the losses themselves were NaN or infinite",
                lambda case, match: {"step": case.f.steps.broken_from},
            ),
        ],
        {"skipped_steps": skipped_by},
    ),
    "scale.collapse": Rule(
        [
            STANDS_AT_FLOOR,
            (r"the last (?P<steps>\d+) steps in a row were skipped, and it (?:fell to|stayed at) (?P<scale>\S+)\.$", collapsed),
            (
                r"from step (?P<step>\d+) on the losses themselves were NaN or infinite",
                lambda case, match: {"step": case.f.steps.broken_from},
            ),
        ],
        {"skipped_steps": skipped_by},
    ),
    "scale.backoffs": Rule(
        [
            (
                r"^(?P<some>\d+) of (?P<all>\d+) steps? (?:was|were) skipped(?:, the first (?P<leading>\d+) of them until the scale had come down "
                r"from (?P<scale>\S+?))?\.$",
                backoffs,
            ),
            STEEP_GROWTH,
        ],
        {"skipped_steps": skipped_by},
        first=first_skipped,
    ),
    "scale.thrashing": Rule(
        [STEEP_GROWTH],
        {"skipped_steps": skipped_by},
        first=first_skipped_after_growth,
    ),
    "scale.over_scaled": Rule(
        [
            (
                r"^The (?P<fixed>fixed )?loss scale, (?P<scale>\S+), is too large: the largest that fits is (?P<largest>.+)\.$",
                largest_that_fits,
            )
        ],
        {"skipped_steps": skipped_by, "largest_fitting_scale": largest_value},
        first=first_skipped,
    ),
    "scale.under_scaled": Rule(
        [
            (
                r"^The loss scale, (?P<scale>\S+), is too small: gradients are flushed\. The smallest fitting scale is (?P<smallest>.+)\.$",
                smallest_that_fits,
            )
        ],
        {"largest_fitting_scale": largest_value, "smallest_fitting_scale": smallest_value},
    ),
    "scale.no_scale_fits": Rule(
        [(r"one gradient needs at least (?P<least>\S+), another overflows above (?P<most>\S+)\.$", none_fits)],
        {"largest_fitting_scale": largest_value, "smallest_fitting_scale": smallest_value},
    ),
    "scale.none": Rule(UNSCALED),
    "scale.missing": Rule(UNSCALED, {"flushed_of_the_worst_gradient": worst_flushed}),
    "scale.fit_hidden": Rule(
        [(r"^In (?P<steps>\d+) of (?P<all>\d+) steps? (?P<tensors>\d+) gradient tensors? (?:was|were) computed", hidden)],
        {"rows_flushed": rows_flushed},
    ),
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
        else "no gradient: none was rounded to a format of less range than FP32"
    ),
}


def judges(case):
    f = case.f
    return bool(case.fitting.what_if) or any(f.tensors.is_computed[i] and f.tensors.dtype[i] == "f16" for i in range(f.tensors.n))


def fact(case, bounds, loose=False):
    if not judges(case) or bounds is None or bounds == (NONE_BELOW, NONE_ABOVE):
        return None
    return scale_bounds(bounds, loose)
