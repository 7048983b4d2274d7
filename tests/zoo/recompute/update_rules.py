"""What updates did to the weights."""

import math

import numpy

from .facts import median
from .range_rules import formats_of, formats_told
from .rules import Rule, Step
from .said import names as names_of
from .sentences import Claim
from .update_tables import Sums


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


def none_applied(case, said):
    all_of = updates(case).values()
    return Claim(
        {"updates": sum(u["rows"] for u in all_of), "parameters": len(all_of)}, no_update_changed_a_weight=all(u["nonzero"] == u["lost"] for u in all_of)
    )


def zeros_from(case, said):
    """In the first step a gradient is all zeros whose op read one that is not."""
    f, r, has_values, found = case.f, case.f.rows, set(), None
    first = int(f.steps.step[0])
    for row in numpy.flatnonzero((r.step == first) & f.tensors.is_gradient[r.tensor] & (r.count > 0)):
        tensor = int(r.tensor[row])
        if r.zeros[row] < r.count[row]:
            has_values.add(tensor)
        elif found is None:
            read = [f.trace.tensor_of_output.get((int(f.tables.ops["id"][o]), slot)) for n, o, slot in f.trace.inputs_of(f.tensors.op[tensor]) if n == 0]
            found = tensor if has_values.intersection(read) else None
    return Claim({"step": first}, there_is_such_a_gradient=found is not None)


def rate_was_zero(case, said):
    return Claim(the_learning_rate_was_0_in_every_step=bool((case.f.steps.learning_rate == 0).all()))


def all_updates_zero(case, said):
    return Claim(every_update_was_zero=all(u["nonzero"] == 0 for u in updates(case).values()))


def all_rounded_away(case, said):
    all_of = updates(case).values()
    return Claim(some_were_not_zero=any(u["nonzero"] for u in all_of), all_were_lost=all(u["nonzero"] == u["lost"] for u in all_of))


DIRECTED = ("rz", "ru", "rd", "ro")


def kind_of(case, tensor):
    """How a weight's rounding treats updates that are small beside its ulp."""
    if not case.f.tensors.is_narrow[tensor]:
        return "fp32"
    mode = case.f.rounding_of(tensor)[0]
    return "stochastic" if mode == "sr" else "directed" if mode in DIRECTED else "nearest"


def kind_told(case):
    if case.finding["code"] == "updates.biased":
        return "directed"
    told = case.said("updates.lost")
    return "stochastic" if told is None else "fp32" if told["formats"] == ["FP32"] else "nearest"


def of_kind(case):
    return {i: u["missed"] for i, u in updates(case).items() if kind_of(case, i) == kind_told(case)}


def lost_parameters(case):
    """More than half of the nonzero updates, or in a directed mode some, and not for weight decay alone, which is told apart."""
    limit = 0 if kind_told(case) == "directed" else 0.5
    return [
        i
        for i, u in of_kind(case).items()
        if u["nonzero"] > 0 and u["lost"] > limit * u["nonzero"] and 2 * u["lost_to_decay"] <= u["lost"]
    ]


def lost_updates(case, said):
    missed = of_kind(case)
    formats = {case.f.format_of(i).name.upper() for i in missed}
    return Claim(
        {"lost": sum(u["lost"] for u in missed.values()) / sum(u["nonzero"] for u in missed.values())},
        these_are_the_formats=said["formats"] == sorted(formats),
    )


def never_changed(case, said):
    """Vectors that lost more than half, and of which no element ever changed, in ten updates or more."""
    tensors = case.f.tables.tensors
    names = [
        case.f.trace.text_of(tensors["parameter"][i])
        for i in lost_parameters(case)
        if len(case.f.trace.shapes[i]) == 1 and updates(case)[i]["rows"] >= 10 and updates(case)[i]["lost"] == updates(case)[i]["nonzero"]
    ]
    return Claim({"count": len(names)}, these_are_some_of_them=set(names_of("parameter", said.values["names"])) <= set(names))


def worst_lost(case):
    missed = of_kind(case)
    shares = {i: missed[i]["lost"] / missed[i]["nonzero"] for i in lost_parameters(case)}
    worst = max(shares, key=shares.get)
    return {"worst": case.f.trace.text_of(case.f.tables.tensors["parameter"][worst]), "worst_share": shares[worst]}


def parameters_lost(case, said):
    of_all = {"all": len(updates(case))} if said.id == "updates.lost.parameters" else {}
    return Claim(
        {"parameters": len(lost_parameters(case)), "limit": 0.5} | of_all | worst_lost(case),
        it_is_all_or_not=bool(of_all) or len(lost_parameters(case)) == len(updates(case)),
    )


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


def decay_lost(case, said):
    of = [updates(case)[i] for i in decayed(case)]
    arrived = max(0.0, sum(u["decay_applied"] for u in of)) / sum(u["decay_asked"] for u in of)
    share = {} if said.id == "updates.decay_lost.all" else {"arrived": arrived}
    return Claim({"parameters": len(of)} | share, some_arrived_or_none=bool(share) == (arrived > 0))


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


def damped_by_eps(case, said):
    moments = second_moments(case)
    return {
        "epsilon": moments[case.first_tensor][0],
        "damped": sum(moments[i][2] for i in damped(case)),
        "elements": sum(elements for _, _, elements in moments.values()),
    }


def damped_in_updates(case, said):
    moments = second_moments(case)
    return {
        "damped_updates": sum(damped_updates(case, i) for i in damped(case)),
        "updates": sum(len(moments[i][1]) for i in damped(case)),
    }


DAMPED_VALUES = {
    "eps_over_last_root": lambda case, tensor, _: second_moments(case)[tensor][0] / float(second_moments(case)[tensor][1][-1]),
    "damped_updates": lambda case, tensor, _: damped_updates(case, tensor),
}


BITS = {"bf16": 8, "f16": 11}  # of significands


def stuck_moments(case):
    """Second moments in 16 bits of which beta2 times some, or all, round back: by tensor, beta2 and over_exact()."""
    f, found = case.f, {}
    for i in second_moments(case):
        dtype, beta2 = f.tensors.dtype[i], f.trace.attribute(f.tensors.op[i], "beta2")
        rows = numpy.flatnonzero(f.rows_of(i) & case.scope)
        if dtype not in BITS or f.rounding_of(i)[0] != "rne" or len(rows) < 2 or 1 - beta2 >= 2.0 ** -BITS[dtype]:
            continue
        ratio = over_exact(case, i, beta2)
        if 1 - beta2 < 2.0 ** -(BITS[dtype] + 1) or (ratio or 1) >= 2:
            found[i] = (beta2, ratio)
    return found


def over_exact(case, moment, beta2):
    """How many times the sum of its elements is what the squares of its gradients give, from the first row behind steps that were not recorded
    on; None: not known."""
    f, op = case.f, case.f.tensors.op[moment]
    read = {f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)] for _, producer, slot in f.trace.inputs_of(op)}
    gradients = [tensor for tensor in read if f.tensors.is_gradient[tensor]]
    if len(gradients) != 1 or not (f.trace.attribute(op, "decoupled") or f.trace.attribute(op, "weight_decay") == 0):
        return None
    squares = {int(f.rows.step[row]): f.rows.sum_of_squares[row] / f.rows.scale[row] ** 2 for row in numpy.flatnonzero(f.rows_of(gradients[0]))}
    taken = set(f.steps.step[~f.steps.skipped].tolist())
    exact = last = before = None
    for row in numpy.flatnonzero(f.rows_of(moment)):
        step = int(f.rows.step[row])
        if f.steps.is_broken and step >= f.steps.broken_from:
            break
        last = f.tables.stats["sum"][row]
        follows = before is not None and all(between in f.steps.step and between not in taken for between in range(before + 1, step))
        exact = beta2 * exact + (1 - beta2) * squares[step] if follows else last
        before = step
    elements = int(numpy.prod(f.trace.shapes[moment], dtype=int))
    return float(last / exact) if exact > 0 and math.sqrt(exact / elements) > f.trace.attribute(op, "eps") else None


def stuck(case, said):
    moments = stuck_moments(case)
    return Claim(
        {"beta2": max(beta2 for beta2, _ in moments.values())},
        the_formats_are_these=formats_told(said) == formats_of(case, moments),
    )


def far_too_large(case):
    return sorted((i for i, (_, ratio) in stuck_moments(case).items() if (ratio or 1) >= 2), key=lambda i: -stuck_moments(case)[i][1])


def too_large(case, said):
    found = far_too_large(case)
    return {"moments": len(found), "all": len(stuck_moments(case)), "limit": 2, "ratio": stuck_moments(case)[found[0]][1]}


def states_in_fp32(case, said):
    return {"largest": min(1 - 4 * 2.0 ** -BITS[case.f.tensors.dtype[i]] for i in stuck_moments(case))}


def clipping(case):
    """Of steps that were taken and of which both norms are known: the norms of the gradients, and how many times longer they were than what
    clipping left."""
    s = case.f.tables.steps
    mine = (s["step"] < case.before) & (s["skipped"] == 0) & (s["norm_known"] == 1) & numpy.isfinite(s["gradient_norm"])
    mine &= s["clipped_gradient_norm"] > 0
    return s["gradient_norm"][mine], s["gradient_norm"][mine] / s["clipped_gradient_norm"][mine]


def floored(ratio):
    unit = 10.0 ** (math.floor(math.log10(ratio)) - 2)
    return math.floor(ratio / unit) * unit


def shortened(case, said):
    norms, ratios = clipping(case)
    return Claim({"ratio": floored(ratios.min()), "steps": len(norms)}, it_is_more_than_a_hundred=ratios.min() > 100)


def clipped_away(case, said):
    return Claim(shortened(case, said), **shortened(case, said).holds, updates_are_of_SGD="sgd_update" in case.f.tensors.function)


def clipped_while_scaled(case, said):
    functions = case.f.tensors.function
    return Claim(it_clips="clip_norm" in functions, it_unscales="unscale" in functions)


def first_gradient(case, tensor):
    """Its row in the step that the evidence names."""
    step = case.finding["evidence"][0]["key"]["step"]
    return int(numpy.flatnonzero(case.f.rows_of(tensor) & (case.f.rows.step == step))[-1])


def still_scaled(case, said):
    f = case.f
    gradient = f.rows_of(case.first_tensor) & (f.rows.step == said["step"])
    return Claim({"scale": f.rows.scale[gradient][-1]}, it_is_a_scale=f.rows.scale[gradient][-1] >= 4)


def never_scaled(case, said):
    f = case.f
    made = f.rows_of(case.first_tensor) & (f.rows.step == f.steps.step[0])
    return Claim({"scale": float(f.steps.scale_before[0])}, it_was_unscaled_so_often=numpy.count_nonzero(f.rows_of(case.first_tensor)) >= said["kept"],
                 it_is_there=bool(made.any()))


def gradients_kept(case, said):
    sums = numpy.count_nonzero(case.f.rows_of(case.first_tensor))
    return Claim(it_was_added_up_so_often=sums >= said["kept"], in_half_of_them=2 * said["kept"] >= said["steps"] - 1)


def loss_stayed(case, said):
    s = case.f.steps
    losses = s.loss[s.known & (s.step < case.before)]
    first, last = median(losses[:10]), median(losses[-10:])
    return Claim({"first": first, "last": last}, the_loss_did_not_move=0.99 * first <= last <= 1.1 * first)


def norms_of_gradients(case, said):
    norms, _ = clipping(case)
    return {"least": float(norms.min()), "largest": float(norms.max())}


def clipping_shortens(case, said):
    norms, ratios = clipping(case)
    return Claim(
        norms_of_gradients(case, said) | {"ratio": floored(ratios.min())},
        it_is_ten_at_least=ratios.min() >= 10,
        updates_are_of_SGD="sgd_update" in case.f.tensors.function,
    )


def sums(case):
    return case.once(Sums, lambda: Sums(case.f, case.before))


def stagnant(case):
    """The sums that the finding is on: of gradients, or others, as its first tensor is."""
    return sums(case).stagnant(case.first_tensor in sums(case).of_gradients)


def stagnant_sums(case, said):
    is_of_gradients = case.first_tensor in sums(case).of_gradients
    return Claim(
        {
            "sums": len(stagnant(case)),
            "all": sum((tensor in sums(case).of_gradients) == is_of_gradients for tensor in sums(case).of),
            "limit": 0.1,
        },
        the_formats_are_these=formats_told(said) == formats_of(case, stagnant(case)),
        they_are_gradients=is_of_gradients == (said.id == "precision.sum_stagnates"),
    )


def worst_sum(case, said):
    worst = stagnant(case)[0]
    return {"share": sums(case).lost(worst), "additions": sums(case).of[worst].additions}


def absorbed_addends(case, said):
    worst = sums(case).of[stagnant(case)[0]]
    return {"absorbed": worst.absorbed / worst.addends, "addends": worst.addends}


# By the ids of templates.
SAID = {
    "precision.sum_stagnates": stagnant_sums,
    "precision.sum_stagnates.others": stagnant_sums,
    "precision.sum_stagnates.worst": worst_sum,
    "precision.sum_stagnates.absorbed": absorbed_addends,
    "precision.second_moment_stuck": stuck,
    "precision.second_moment_stuck.too_large": too_large,
    "precision.second_moment_stuck.often": stuck,
    "advice.second_moments_in_fp32": states_in_fp32,
    "updates.none_applied": none_applied,
    "updates.none_applied.rate_was_zero": rate_was_zero,
    "updates.none_applied.were_zero": all_updates_zero,
    "updates.none_applied.zeros_from": zeros_from,
    "updates.none_applied.rounded_away": all_rounded_away,
    "updates.lost": lost_updates,
    "updates.lost.parameters": parameters_lost,
    "updates.lost.all_parameters": parameters_lost,
    "updates.lost.never_changed": never_changed,
    "updates.lost.ulp_of_fp32": lambda case, said: Claim(they_are_FP32=kind_told(case) == "fp32"),
    "updates.lost.fitted_left_out": lambda case, said: {"steps": (case.f.steps.fitted & ~case.f.steps.broken).sum()},
    "updates.lost.stochastic": lambda case, said: {"parameters": len(lost_parameters(case)), "limit": 0.5},
    "updates.lost.none_on_average": lambda case, said: {},
    "updates.biased": lambda case, said: {"parameters": len(lost_parameters(case))} | worst_lost(case),
    "updates.decay_lost": decay_lost,
    "updates.decay_lost.all": decay_lost,
    "updates.clipped_away": clipped_away,
    "updates.clipped_away.loss_stayed": loss_stayed,
    "updates.still_scaled": still_scaled,
    "updates.never_scaled": never_scaled,
    "updates.gradients_kept": gradients_kept,
    "updates.clipped_while_scaled": clipped_while_scaled,
    "updates.clipped_while_scaled.shortens": lambda case, said: {"ratio": floored(clipping(case)[1].min()), "steps": len(clipping(case)[0])},
    "advice.norms_of_gradients_were": norms_of_gradients,
    "advice.clipping_shortens": clipping_shortens,
    "updates.damped_by_epsilon": damped_by_eps,
    "updates.damped_by_epsilon.updates": damped_in_updates,
    "updates.damped_by_epsilon.clipping": shortened,
}

RULES = {
    "precision.second_moment_stuck": Rule(
        values={
            "over_exact": lambda case, tensor, _: stuck_moments(case)[tensor][1],
            "updates": lambda case, tensor, _: int((case.f.rows_of(tensor) & case.scope).sum()),
        },
        all_of=lambda case: far_too_large(case) if 2 * len(far_too_large(case)) > len(stuck_moments(case)) else list(stuck_moments(case)),
    ),
    "precision.sum_stagnates": Rule(
        values={
            "lost": lambda case, tensor, _: sums(case).lost(tensor),
            "absorbed_addends": lambda case, tensor, _: sums(case).of[tensor].absorbed,
            "addends": lambda case, tensor, _: sums(case).of[tensor].addends,
        },
        all_of=stagnant,
        first=lambda case: min(sums(case).of[tensor].first for tensor in stagnant(case)),
    ),
    "updates.none_applied": Rule(
        values={"updates": lambda case, tensor, _: updates(case)[tensor]["rows"], "nonzero_updates": LOST_VALUES["nonzero_updates"]},
        all_of=lambda case: list(updates(case)),
        first=lambda case: int(case.f.steps.step[0]),
    ),
    "updates.lost": Rule(values=LOST_VALUES, all_of=lost_parameters, first=first_lost),
    "updates.biased": Rule(values=LOST_VALUES, all_of=lost_parameters, first=first_lost),
    "updates.decay_lost": Rule(values=DECAY_VALUES, all_of=decayed, first=first_decay_lost),
    "updates.clipped_away": Rule(
        values={"clipped_by_at_least": lambda case, *_: floored(clipping(case)[1].min())},
        place=lambda case, tensor, _: Step(int(case.f.steps.step[~case.f.steps.broken][-1])),
        first=lambda case: int(case.f.steps.step[0]),
    ),
    "updates.still_scaled": Rule(
        values={"loss_scale": lambda case, tensor, place: float(case.f.rows.scale[first_gradient(case, tensor)])},
        place=lambda case, tensor, _: first_gradient(case, tensor),
    ),
    "updates.never_scaled": Rule(
        values={"loss_scale": lambda case, tensor, place: float(case.f.steps.scale_before[0])},
        place=lambda case, tensor, _: first_gradient(case, tensor),
    ),
    "updates.gradients_kept": Rule(
        values={"steps": lambda case, *_: case.said("updates.gradients_kept")["kept"]},
        place=lambda case, tensor, _: first_gradient(case, tensor),
    ),
    "updates.clipped_while_scaled": Rule(
        values={"clipped_by_at_least": lambda case, *_: floored(clipping(case)[1].min())},
        place=lambda case, tensor, _: Step(int(case.f.steps.step[~case.f.steps.broken][-1])),
        first=lambda case: int(case.f.steps.step[0]),
    ),
    "updates.damped_by_epsilon": Rule(values=DAMPED_VALUES, place=damped_from, all_of=damped),
}
