"""Values that grow, and gradients that fall, from product to product."""

import math

import numpy

from .nonfinite_rules import origin_of
from .rules import Rule, Step
from .sentences import Claim

GRADIENTS = ("activation_gradient", "weight_gradient")
VALUES = ("activation", "input")


def way(case):
    """The products on the way to the origin, or the sums of branches, from the first to the last: (tensor, largest magnitude)."""
    f = case.f
    of_sums = case.said("model.values_grow.sums") is not None
    origin = origin_of(case)
    r = f.rows
    largest = {}
    for row in range(len(r.step)):
        if (r.step[row], r.micro_batch[row]) == (r.step[origin], r.micro_batch[origin]) and r.finite_before[row] and r.has_values[row]:
            largest[int(r.tensor[row])] = float(r.largest[row]) / float(f.tables.stats["quantization_scale"][row])
    here = int(r.tensor[origin])
    roles = GRADIENTS if f.tensors.role[here] in GRADIENTS else VALUES
    found = []
    while here is not None:
        size = largest.get(here, math.nan)
        if counts(f, here, found, roles, of_sums) and size > 0:
            if found and size >= found[-1][1]:
                break
            found.append((here, size))
        op = f.tensors.op[here]
        made = [
            f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)]
            for _, producer, slot in sorted(f.trace.inputs_of(op))
            if producer < op
        ]
        made = [i for i in made if f.tensors.role[i] in roles and largest.get(i, 0) > 0]
        here = max(made, key=lambda i: largest[i]) if made else None
    return found[::-1]


def counts(f, tensor, found, roles, of_sums):
    """A product; or the last sum of a module, of several values of that kind."""
    ops, op = f.trace.tables.ops, f.tensors.op[tensor]
    if not of_sums:
        return ops.words("kind")[op] == "product"
    if ops.words("function")[op] != "add" or (found and ops["module"][f.tensors.op[found[-1][0]]] == ops["module"][op]):
        return False
    inputs = f.trace.inputs_of(op)
    return sum(f.tensors.role[f.trace.tensor_of_output[(int(ops["id"][o]), slot)]] in roles for _, o, slot in inputs) > 1


def grew(case, said):
    products = case.once("way", lambda: way(case))
    (first, smallest), (last, size) = products[0], products[-1]
    each = (size / smallest) ** (1 / (len(products) - 1))
    return Claim(
        {"count": len(products), "step": int(case.f.rows.step[origin_of(case)]), "factor": each, "first": smallest, "last": size},
        it_is_what_the_rule_calls_growth=len(products) >= 4 and each >= 2 and size >= 256 * smallest,
        the_named_tensors_are_the_ends=[case.tensor_of(e) for e in case.finding["evidence"]] == [last, first],
    )


def fall(case):
    """The longest way back to a matrix that lost most of its updates, in the first step in which it did: the first step of all that did, that step, and
    (tensor, largest magnitude) of each product."""
    f = case.f
    products = f.trace.tables.ops.words("kind")
    computed = ("activation_gradient", "weight_gradient")
    gradients = (*computed, "accumulated_gradient", "unscaled_gradient")
    p = f.tables.parameters
    ways = []
    for tensor in sorted({int(t) for t in p["tensor"]}):
        mine = (p["tensor"] == tensor) & ~numpy.isin(p["step"], f.steps.step[f.steps.fitted])
        lost, nonzero, steps = p["lost"][mine].astype(int), p["nonzero"][mine].astype(int), p["step"][mine].astype(int)
        if len(f.trace.shapes[tensor]) < 2 or not 2 * lost.sum() > nonzero.sum():
            continue
        step = int(steps[2 * lost > nonzero][0])
        in_step = [r for r in range(len(f.rows.step)) if f.rows.step[r] == step]
        # The optimizer runs with the last micro-batch.
        last = max(int(f.rows.micro_batch[r]) for r in in_step if f.rows.tensor[r] == tensor)
        rows = [r for r in in_step if f.rows.has_values[r] and f.rows.micro_batch[r] == last]
        largest = {int(f.rows.tensor[r]): float(f.rows.largest[r]) for r in rows}
        found, here = [], tensor
        while here is not None:
            op = f.tensors.op[here]
            if products[op] == "product" and f.tensors.role[here] == "activation_gradient":
                if found and largest[here] <= found[-1][1]:
                    break
                found.append((here, largest[here]))
            made = [f.trace.tensor_of_output[(int(f.tables.ops["id"][o]), slot)] for _, o, slot in sorted(f.trace.inputs_of(op)) if o < op]
            made = [i for i in made if f.tensors.role[i] in gradients and largest.get(i, 0) > 0]
            here = max(made, key=lambda i: largest[i]) if made else None
        ways.append((step, found[::-1]))
    first = min(step for step, way in ways if len(way) >= 4)
    return first, *max(ways, key=lambda each: len(each[1]))


def fell(case, said):
    *_, products = case.once("fall", lambda: fall(case))
    (first, largest), (last, size) = products[0], products[-1]
    each = (largest / size) ** (1 / (len(products) - 1))
    return Claim(
        {"factor": each, "first": largest, "last": size, "layers": len(products)},
        it_is_what_the_rule_calls_a_fall=len(products) >= 4
        and ((each >= 2 and largest >= 256 * size) or (each >= 1 / 0.75 and largest >= 65536 * size)),
        the_named_tensors_are_the_ends=[case.tensor_of(e) for e in case.finding["evidence"]] == [last, first],
    )


RULES = {
    "model.gradients_fall": Rule(
        values={"largest": lambda case, tensor, _: dict(fall(case)[2])[tensor]},
        place=lambda case, *_: Step(fall(case)[1]),
        first=lambda case: fall(case)[0],
    ),
    "model.values_grow": Rule(
        values={"largest": lambda case, tensor, _: dict(way(case))[tensor]},
        place=lambda case, *_: Step(int(case.f.rows.step[origin_of(case)])),
        first=lambda case: int(case.f.rows.step[origin_of(case)]),
    ),
}


SAID = {
    "model.values_grow": grew,
    "model.gradients_fall": fell,
    "advice.no_format_mends_fall": lambda case, said: {},  # 1/4, the slope s (1 - s) of a sigmoid where s is 1/2
    "advice.keep_gradients_large": lambda case, said: {},  # 1, the slope of a relu
}
