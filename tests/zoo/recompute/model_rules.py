"""What goes into a model, what it passes on, and what tensor cores make of its products."""

import math

import numpy

from .rules import Rule, Step
from .sentences import Claim, general

DEAD_ROWS = 10
MAY_DIE = ("relu", "clamp", "silu", "gelu", "gelu_tanh")


# Outputs that are dead.


def zeros_to_the_end(case, tensor):
    """The rows at the end of a tensor's of which every element was zero, though no rounding had made it so."""
    f = case.f
    rows = numpy.flatnonzero(f.rows_of(tensor) & case.scope)
    zero = (
        (f.rows.zeros[rows] == f.rows.count[rows])
        & (f.rows.count[rows] > 0)
        & (f.rows.flushed[rows] == 0)
        & (f.rows.input_flushed[rows] == 0)
    )
    others = numpy.flatnonzero(~zero)
    return rows[int(others[-1]) + 1 if others.size else 0 :]


def dead(case):
    f = case.f
    drops = case.finding["code"] == "model.drops_everything"
    found = []
    for i in range(f.tensors.n):
        functions = ("dropout",) if drops else MAY_DIE
        if (
            f.tensors.function[i] in functions
            and f.tensors.phase[i] == "forward"
            and f.tensors.role[i] == "activation"
            and f.tensors.slot[i] == 0
        ):
            zeros = len(zeros_to_the_end(case, i))
            if drops and zeros < (f.rows_of(i) & case.scope).sum():
                continue
            if zeros >= DEAD_ROWS and reads_what_is_not_zero(case, i):
                found.append(i)
    return found


def reads_what_is_not_zero(case, tensor):
    f = case.f
    reads = [(producer, slot) for number, producer, slot in f.trace.inputs_of(f.tensors.op[tensor])]
    made = [f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)] for producer, slot in reads]
    return len(made) == 1 and len(zeros_to_the_end(case, made[0])) < DEAD_ROWS


def share_dropped(case, tensor):
    return case.f.trace.attribute(case.f.tensors.op[tensor], "p")


def kept_of_a_sample(case, tensor):
    of = math.prod(case.f.trace.shapes[tensor][1:])
    return (1 - share_dropped(case, tensor)) * of, of


def sparse(case):
    """Dropouts that keep less than a tenth, and of a sample less than one element, and not those that keep nothing."""
    t, found = case.f.tensors, []
    for i in range(t.n):
        if t.function[i] == "dropout" and t.phase[i] == "forward" and t.role[i] == "activation" and len(case.f.trace.shapes[i]) > 1:
            if 0.9 < share_dropped(case, i) < 1 and kept_of_a_sample(case, i)[0] < 1 and i not in dead(case):
                found.append(i)
    return sorted(found, key=lambda i: kept_of_a_sample(case, i)[0])


def drops_all(case):
    """Whether the finding is of those that keep nothing."""
    return any(case.said(id) for id in ("model.drops_everything", "model.drops_everything.several"))


def dropped_from(case, tensor):
    if drops_all(case):
        return int(zeros_to_the_end(case, tensor)[0])
    return Step(int(case.f.rows.step[numpy.flatnonzero(case.f.rows_of(tensor))[0]]))


def is_called(case, place):
    """Whether a phrase names the first tensor of the evidence by its module and its op."""
    key = case.finding["evidence"][0]["key"]
    return (place["module"], place["op"]) == (key["module"], key["op_name"])


def keeps_little(case, said):
    tensors = sparse(case)
    kept, of = kept_of_a_sample(case, tensors[0])
    others = {"others": len(tensors) - 1} if said.id == "model.drops_everything.several_nearly" else {}
    return Claim(
        {"kept": kept, "elements": of, "factor": 1 / (1 - share_dropped(case, tensors[0]))} | others,
        it_is_the_named_one=tensors[0] == case.first_tensor and is_called(case, said["dropout"]),
        others_are_counted=bool(others) == (len(tensors) > 1),
    )


def died(case, said):
    f, tensors = case.f, dead(case)
    first = min(int(f.rows.step[zeros_to_the_end(case, i)[0]]) for i in tensors)
    if said.id == "model.dead_output.several":
        return {"activations": len(tensors), "step": first}
    return Claim({"step": first}, it_is_the_only_one=len(tensors) == 1 and is_called(case, said["activation"]))


def elements_of(case, tensor):
    return int(case.f.rows.count[case.f.rows_of(tensor)].sum())


def norms_of_one(case):
    """Norms that take away as many means as they have values."""
    f, found = case.f, []
    for i in range(f.tensors.n):
        if f.tensors.function[i] not in ("layer_norm", "group_norm") or f.tensors.phase[i] != "forward" or f.tensors.slot[i] != 0:
            continue
        op = int(f.tables.ops["id"][f.tensors.op[i]])
        if elements_of(case, i) == elements_of(case, f.trace.tensor_of_output[op, 1]):
            found.append(i)
    return found


# What tensor cores pad.


def products(case):
    """By forward op: (M, N, K, how many, whether M is padded, the multiple), of products whose results are narrow."""
    f = case.f
    found = {}
    for i in range(f.tensors.n):
        if f.tensors.phase[i] == "forward" and f.tensors.slot[i] == 0 and f.tensors.is_narrow[i]:
            numbers = [int(n) for n in f.trace.text_of(f.tables.ops["product"][f.tensors.op[i]]).split(",") if n]
            if numbers:
                found[i] = (*numbers, 8) if len(numbers) == 5 else tuple(numbers)
    return found


def padded(product):
    m, n, k, how_many, pads_m, multiple = product

    def up(x):
        return -(-x // multiple) * multiple

    return (up(m) if pads_m else m) * up(n) * up(k) * how_many


def work(product):
    m, n, k, how_many, _, _ = product
    return m * n * k * how_many


def like(case, tensor):
    """The products of the same op of its module that have the same shape."""
    of, name = products(case), lambda i: [case.f.tables.ops[column][case.f.tensors.op[i]] for column in ("module", "name")]
    return [i for i, product in of.items() if product == of[tensor] and name(i) == name(tensor)]


def missed(case):
    """The multiples that products miss."""
    return {product[5] for product in products(case).values() if padded(product) != work(product)}


def padding(case, said):
    n = sum(padded(product) != work(product) for product in products(case).values())
    return Claim(
        {"products": n, "multiples": None},
        the_multiples_are_these={number["value"] for number in said.values["multiples"]} == missed(case),
    )


def padding_costs(case, said):
    of = products(case).values()
    n = sum(padded(product) != work(product) for product in of)
    return {"products": n, "factor": sum(map(padded, of)) / sum(map(work, of))}


def padding_text(case, tensor, _):
    m, n, k, _, pads_m, multiple = products(case)[tensor]
    extents = [("M", m)] * bool(pads_m) + [("N", n), ("K", k)]
    return ", ".join(f"{name} {x} -> {-(-x // multiple) * multiple}" for name, x in extents if x % multiple)


PADDING_VALUES = {
    "padding": padding_text,
    "padded_over_real_work": lambda case, tensor, _: padded(products(case)[tensor]) / work(products(case)[tensor]),
    "share_of_products": lambda case, tensor, _: sum(work(products(case)[i]) for i in like(case, tensor))
    / sum(map(work, products(case).values())),
    "products": lambda case, tensor, _: len(like(case, tensor)),
}


# Products of a run in 16 bits that are computed in wider types.


def flops(case):
    """By tensor, of products of the forward pass and the loss whose K is known: the work of all their calls."""
    f = case.f
    calls = numpy.bincount(f.rows.tensor, minlength=f.tensors.n)
    found, ops = {}, set()
    for i in range(f.tensors.n):
        if f.tensors.phase[i] not in ("forward", "loss") or f.tensors.slot[i] != 0 or f.tensors.op[i] in ops:
            continue
        ops.add(f.tensors.op[i])
        numbers = [int(n) for n in f.trace.text_of(f.tables.ops["product"][f.tensors.op[i]]).split(",") if n]
        if numbers and calls[i]:
            m, n, k, how_many = numbers[:4]
            with_values = m * n * f.trace.shapes[i][-1] * how_many if f.tensors.function[i] == "attention" else 0
            found[i] = calls[i] * (m * n * k * how_many + with_values)
    return found


def place_of(case, tensor):
    ops, op = case.f.tables.ops, case.f.tensors.op[tensor]
    return case.f.trace.text_of(ops["module"][op]) or " " + case.f.trace.text_of(ops["name"][op])


def wide_places(case):
    """By module, or op outside of all, the tensors of its wide products."""
    places = {}
    for i in flops(case):
        if not case.f.tensors.is_narrow[i]:
            places.setdefault(place_of(case, i), []).append(i)
    return places


def share_of_place(case, tensor, _):
    of = flops(case)
    return sum(of[i] for i in wide_places(case)[place_of(case, tensor)]) / sum(of.values())


def calls_of_place(case, tensor, _):
    return int(numpy.isin(case.f.rows.tensor, wide_places(case)[place_of(case, tensor)]).sum())


def wide_share(case, said):
    of = flops(case)
    wide = sum(work for i, work in of.items() if not case.f.tensors.is_narrow[i])
    return Claim({"share": wide / sum(of.values()), "places": None}, some_are_narrow=wide < sum(of.values()), it_is_felt=wide >= 0.01 * sum(of.values()))


SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8_e4m3": 1, "f8_e5m2": 1, "i64": 8, "i32": 4, "u8": 1, "bool": 1}


def bytes_of_casts(case, said):
    f, total = case.f, 0
    for i in range(f.tensors.n):
        op = f.tensors.op[i]
        if f.tables.ops.words("kind")[op] != "cast" or f.tensors.slot[i] != 0 or f.tensors.phase[i] in ("evaluation", "data"):
            continue
        for number, producer, slot in f.trace.inputs_of(op):
            if number == 0:
                read = f.trace.tensor_of_output[int(f.tables.ops["id"][producer]), slot]
                total += int(f.rows.count[f.rows.tensor == i].sum()) * (SIZES[f.tensors.dtype[read]] + SIZES[f.tensors.dtype[i]])
                break
    return {"bytes": total / f.steps.n}


# By the ids of templates.
SAID = {
    "autocast.coverage": wide_share,
    "autocast.coverage.more": lambda case, said: {"more": len(wide_places(case)) - 3},
    "autocast.coverage.casts": bytes_of_casts,
    "model.dead_output": died,
    "model.dead_output.several": died,
    "advice.look_at_sign_of_inputs": lambda case, said: {},  # 0, below which a relu passes nothing on
    "model.norm_of_one": lambda case, said: Claim(there_is_one=bool(norms_of_one(case))),
    "model.drops_everything.nearly": keeps_little,
    "model.drops_everything.several_nearly": keeps_little,
    "model.drops_everything.several": lambda case, said: {"dropouts": len(dead(case))},
    "advice.drop_less": lambda case, said: {"share": share_dropped(case, case.first_tensor)},
    "advice.drop_less_than_all": lambda case, said: {},  # 1, the share that is everything
    "tensor_cores.padding": padding,
    "tensor_cores.padding.both": padding,
    "tensor_cores.padding.convolutions": padding,
    "tensor_cores.padding.costs": padding_costs,
    "advice.take_multiples": lambda case, said: {"multiple": max(missed(case))},
}

RULES = {
    "autocast.coverage": Rule(values={"share_of_flops": share_of_place, "products": calls_of_place}),
    "model.dead_output": Rule(
        values={"rows_of_zeros_to_the_end": lambda case, tensor, _: len(zeros_to_the_end(case, tensor))},
        place=lambda case, tensor, _: int(zeros_to_the_end(case, tensor)[0]),
        all_of=dead,
    ),
    "model.norm_of_one": Rule(
        values={"elements": lambda case, tensor, _: elements_of(case, tensor)},
        all_of=norms_of_one,
        first=lambda case: int(case.f.steps.step[0]),
    ),
    "model.drops_everything": Rule(
        values={
            "rows_of_zeros_to_the_end": lambda case, tensor, _: len(zeros_to_the_end(case, tensor)),
            "kept_of_a_sample": lambda case, tensor, _: kept_of_a_sample(case, tensor)[0],
            "of_elements": lambda case, tensor, _: kept_of_a_sample(case, tensor)[1],
        },
        place=lambda case, tensor, _: dropped_from(case, tensor),
        all_of=lambda case: dead(case) if drops_all(case) else sparse(case),
    ),
    "tensor_cores.padding": Rule([], PADDING_VALUES),
}
