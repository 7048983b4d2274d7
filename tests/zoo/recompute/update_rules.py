"""What updates did to the weights."""

import math

import numpy

from .facts import median
from .rules import Rule, Step, setting_now
from .sentences import Claim, Shown, general, share


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
        missed = mine & ~numpy.isin(p["step"], case.f.steps.step[case.f.steps.fitted])
        total["missed"] = {name: int(p[name][missed].sum()) for name in ("nonzero", "lost", "lost_to_decay")}
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
        for i, u in ((i, u["missed"]) for i, u in updates(case).items())
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
    mine &= ~numpy.isin(p["step"], case.f.steps.step[case.f.steps.fitted])
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
    "lost": lambda case, tensor, _: updates(case)[tensor]["missed"]["lost"] / updates(case)[tensor]["missed"]["nonzero"],
    "nonzero_updates": lambda case, tensor, _: updates(case)[tensor]["missed"]["nonzero"],
    "lost_to_decay": lambda case, tensor, _: updates(case)[tensor]["lost_to_decay"],
}
DECAY_VALUES = {
    "arrived": lambda case, tensor, _: max(0.0, updates(case)[tensor]["decay_applied"]) / updates(case)[tensor]["decay_asked"],
    "decay_asked": lambda case, tensor, _: updates(case)[tensor]["decay_asked"],
    "decay_applied": lambda case, tensor, _: updates(case)[tensor]["decay_applied"],
}


def second_moments(case):
    """Of Adam's second moments: eps, the largest root of each update with magnitudes, corrected for its bias, and the elements. A trace of
    these runs has all updates, so the t-th row is the t-th update."""
    f = case.f
    found = {}
    for i in range(f.tensors.n):
        rows = numpy.flatnonzero(f.rows_of(i) & case.scope)
        if f.tensors.function[i] != "adam_update" or f.tensors.slot[i] != 2 or not rows.size:
            continue
        eps, beta2 = (f.trace.attribute(f.tensors.op[i], name) for name in ("eps", "beta2"))
        roots = numpy.sqrt(f.rows.largest[rows] / (1 - beta2 ** numpy.arange(1, len(rows) + 1)))[f.rows.has_values[rows]]
        found[i] = (eps, roots, int(numpy.prod(f.trace.shapes[i], dtype=int)))
    return found


def damped_updates(case, tensor):
    eps, roots, _ = second_moments(case)[tensor]
    return int(((roots > 0) & (roots < eps)).sum())


def damped_from(case, tensor, _=None):
    eps, roots, _ = second_moments(case)[tensor]
    rows = numpy.flatnonzero(case.f.rows_of(tensor) & case.scope & case.f.rows.has_values)
    return int(rows[(roots > 0) & (roots < eps)][0])


def damped(case):
    return [i for i, (_, roots, _) in second_moments(case).items() if len(roots) and 10 * damped_updates(case, i) >= 9 * len(roots)]


def damped_by_eps(case, match):
    moments = second_moments(case)
    return {
        "eps": general(moments[case.first_tensor][0], 6),
        "some": sum(moments[i][2] for i in damped(case)),
        "all": sum(elements for _, _, elements in moments.values()),
        "updates": sum(damped_updates(case, i) for i in damped(case)),
        "of": sum(len(moments[i][1]) for i in damped(case)),
    }


DAMPED_VALUES = {
    "eps_over_last_root": lambda case, tensor, _: second_moments(case)[tensor][0] / float(second_moments(case)[tensor][1][-1]),
    "damped_updates": lambda case, tensor, _: damped_updates(case, tensor),
}


def clipping(case):
    """Of steps that were taken and of which both norms are known: the norms of the gradients, and how many times longer they were than what
    clipping left."""
    s = case.f.tables.steps
    mine = (s["step"] < case.before) & (s["skipped"] == 0) & (s["norm_known"] == 1) & numpy.isfinite(s["gradient_norm"])
    mine &= s["clipped_gradient_norm"] > 0
    return s["gradient_norm"][mine], s["gradient_norm"][mine] / s["clipped_gradient_norm"][mine]


def clipped_away(case, match):
    s = case.f.steps
    losses = s.loss[s.known & (s.step < case.before)]
    norms, ratios = clipping(case)
    first, last = median(losses[:10]), median(losses[-10:])
    return Claim(
        {"times": Shown(float(ratios.min()), lambda x: str(math.floor(x))), "steps": len(norms), "first": general(first, 4), "last": general(last, 4)},
        it_is_more_than_a_thousand=ratios.min() > 1000,
        the_loss_did_not_move=0.99 * first <= last <= 1.1 * first,
        updates_are_of_SGD="sgd_update" in case.f.tensors.function,
    )


def norms_of_gradients(case, match):
    norms, _ = clipping(case)
    return {"least": general(float(norms.min()), 4), "largest": general(float(norms.max()), 4)}


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
    "updates.clipped_away": Rule(
        [
            (
                r"^Clipping made the gradients at least (?P<times>\S+) times shorter in each of (?P<steps>\d+) steps, and the loss stayed where it "
                r"was: (?P<first>\S+) at first, (?P<last>\S+) in the end\.",
                clipped_away,
            ),
            (r"larger norm \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("clip_norm")),
            (r"larger values \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("clip_value")),
            (r": norms of the gradients were (?P<least>\S+) to (?P<largest>\S+?)\.$", norms_of_gradients),
        ],
        {"clipped_by_at_least": lambda case, *_: float(clipping(case)[1].min())},
        lambda case, tensor, _: Step(int(case.f.steps.step[~case.f.steps.broken][-1])),
        None,
        lambda case: int(case.f.steps.step[0]),
    ),
    "updates.damped_by_epsilon": Rule(
        [
            (
                r"^Adam's eps, (?P<eps>\S+), was larger than the root of every second moment of (?P<some>\d+) of (?P<all>\d+) elements in "
                r"(?P<updates>\d+) of (?P<of>\d+) recorded updates",
                damped_by_eps,
            ),
            (r"maller(?: eps)? \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("epsilon")),
            (r"larger norm \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("clip_norm")),
            (r"larger values \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("clip_value")),
            (
                r"clipping made the gradients at least (?P<times>\S+) times shorter in each of (?P<steps>\d+) steps, and these roots",
                lambda case, match: {
                    "times": Shown(float(clipping(case)[1].min()), lambda x: str(math.floor(x))),
                    "steps": len(clipping(case)[0]),
                },
            ),
        ],
        DAMPED_VALUES,
        damped_from,
        damped,
    ),
}
