"""What updates did to the weights."""

import math

import numpy

from .rules import Rule, setting_now
from .sentences import Claim, general, share


def updates(case):
    """By tensor, what the rows of `parameters` add up to."""
    p = case.f.tables.parameters
    asked = p["step"] < case.before
    found = {}
    for tensor in numpy.unique(p["tensor"][asked]):
        mine = asked & (p["tensor"] == tensor)
        total = {name: int(p[name][mine].sum()) for name in ("nonzero", "lost", "lost_to_decay")}
        decay = mine & (p["decay_known"] == 1) & numpy.isfinite(p["decay_asked"]) & numpy.isfinite(p["decay_applied"])
        total |= {name: float(p[name][decay].sum()) for name in ("decay_asked", "decay_applied")}
        found[int(tensor)] = total | {"rows": int(mine.sum())}
    return found


def none_applied(case, match):
    all_of = updates(case).values()
    return Claim(
        {"updates": sum(u["rows"] for u in all_of)}, no_update_changed_a_weight=all(u["nonzero"] == u["lost"] for u in all_of)
    )


def rate_was_zero(case, match):
    return Claim(the_learning_rate_was_0_in_every_step=bool((case.f.steps.learning_rate == 0).all()))


def all_updates_zero(case, match):
    return Claim(every_update_was_zero=all(u["nonzero"] == 0 for u in updates(case).values()))


def lost_parameters(case):
    """More than half of the nonzero updates, and not for weight decay alone, which is told apart."""
    fp32 = "of an FP32 weight" in case.finding["suggestion"]
    return [
        i
        for i, u in updates(case).items()
        if u["nonzero"] > 0
        and 2 * u["lost"] > u["nonzero"]
        and 2 * u["lost_to_decay"] <= u["lost"]
        and case.f.tensors.is_narrow[i] != fp32
    ]


def decayed(case):
    return [
        i
        for i, u in updates(case).items()
        if u["decay_asked"] > 0 and 2 * u["decay_applied"] < u["decay_asked"] and case.f.rounding_of(i)[0] != "sr"
    ]


def first_lost(case):
    """The first step in which one of these lost more than half."""
    p = case.f.tables.parameters
    mine = numpy.isin(p["tensor"], lost_parameters(case)) & (2 * p["lost"] > p["nonzero"])
    return int(p["step"][mine][0]) if mine.any() else None


def first_decay_lost(case):
    p = case.f.tables.parameters
    mine = numpy.isin(p["tensor"], decayed(case)) & (p["decay_known"] == 1) & (2 * p["decay_applied"] < p["decay_asked"])
    return int(p["step"][mine][0])


def decay_lost(case, match):
    of = [updates(case)[i] for i in decayed(case)]
    return {
        "parameters": len(of),
        "share": share(max(0.0, sum(u["decay_applied"] for u in of)) / sum(u["decay_asked"] for u in of)),
    }


LOST_VALUES = {
    "lost": lambda case, tensor, _: updates(case)[tensor]["lost"] / updates(case)[tensor]["nonzero"],
    "nonzero_updates": lambda case, tensor, _: updates(case)[tensor]["nonzero"],
    "lost_to_decay": lambda case, tensor, _: updates(case)[tensor]["lost_to_decay"],
}
DECAY_VALUES = {
    "arrived": lambda case, tensor, _: max(0.0, updates(case)[tensor]["decay_applied"]) / updates(case)[tensor]["decay_asked"],
    "decay_asked": lambda case, tensor, _: updates(case)[tensor]["decay_asked"],
    "decay_applied": lambda case, tensor, _: updates(case)[tensor]["decay_applied"],
}


def second_moments(case):
    """Of Adam's second moments: eps, the root of the largest over the run corrected for its bias, and the elements."""
    f = case.f
    found = {}
    for i in range(f.tensors.n):
        rows = f.rows_of(i) & case.scope
        if f.tensors.function[i] != "adam_update" or f.tensors.slot[i] != 2 or not rows.any():
            continue
        eps, beta2 = (f.trace.attribute(f.tensors.op[i], name) for name in ("eps", "beta2"))
        largest = float(f.rows.largest[rows].max())
        root = math.sqrt(largest / (1 - beta2 ** int(rows.sum())))
        found[i] = (eps, root, int(numpy.prod(f.trace.shapes[i], dtype=int)), largest)
    return found


def damped(case):
    return [i for i, (eps, root, _, _) in second_moments(case).items() if 0 < root < eps]


def damped_by_eps(case, match):
    moments = second_moments(case)
    return {
        "eps": general(moments[case.first_tensor][0], 6),
        "some": sum(moments[i][2] for i in damped(case)),
        "all": sum(elements for _, _, elements, _ in moments.values()),
    }


DAMPED_VALUES = {
    "eps_over_largest_root": lambda case, tensor, _: second_moments(case)[tensor][0] / second_moments(case)[tensor][1],
    "largest_second_moment": lambda case, tensor, _: second_moments(case)[tensor][3],
}


RULES = {
    "updates.none_applied": Rule(
        [
            (r"^No update changed any weight in (?P<updates>\d+) recorded updates?", none_applied),
            (r"^The learning rate was (?P<zero>0)\.", lambda case, match: Claim({"zero": 0}, **rate_was_zero(case, match).holds)),
            (r"^Every update was zero", all_updates_zero),
        ],
        {"updates": lambda case, tensor, _: updates(case)[tensor]["rows"], "nonzero_updates": LOST_VALUES["nonzero_updates"]},
        None,
        lambda case: list(updates(case)),
        lambda case: int(case.f.steps.step[0]),
    ),
    "updates.lost": Rule(
        [(r"^(?P<parameters>\d+) parameters? lost more", lambda case, match: {"parameters": len(lost_parameters(case))})],
        LOST_VALUES,
        None,
        lost_parameters,
        first_lost,
    ),
    "updates.decay_lost": Rule(
        [(r"of what was asked for, (?P<share>\S+) arrived in the stored values of (?P<parameters>\d+) parameters?\.", decay_lost)],
        DECAY_VALUES,
        None,
        decayed,
        first_decay_lost,
    ),
    "updates.damped_by_epsilon": Rule(
        [
            (
                r"^Adam's eps, (?P<eps>\S+), was larger than the root of every second moment of (?P<some>\d+) of (?P<all>\d+) elements",
                damped_by_eps,
            ),
            (r"\((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("epsilon")),
        ],
        DAMPED_VALUES,
        None,
        damped,
    ),
}
