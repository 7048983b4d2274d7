"""What goes into a model, what it passes on, and what tensor cores make of its products."""

import math

import numpy

from .rules import Rule, Step
from .samples import sample_of
from .sentences import Claim, general

DEAD_ROWS = 10
MAY_DIE = ("relu", "clamp", "silu", "gelu", "gelu_tanh")


# Data, and outputs that are dead.


def bad_data(case, match):
    f = case.f
    tensor = case.first_tensor
    mine = f.rows.bad & f.rows_of(tensor)
    row = f.first_row(mine)
    return Claim(
        {"batches": int(mine.sum()), "tensor": case.first_name, "step": f.rows.step[row]},
        it_came_in_as_data=f.tensors.role[tensor] == "input" and f.tensors.function[tensor] == "source",
        no_rounding_made_it=f.rows.became_infinite[row] == 0,
    )


def bad_sample(case, match):
    """Which sample of the batch the captured element is of, and where the sources have it."""
    f = case.f
    c, s = f.tables.captures, f.tables.sources
    step = f.rows.step[f.first_row(f.rows.bad & f.rows_of(case.first_tensor))]
    root = next(i for i in range(c.rows) if c["step"][i] == step and c["tensor"][i] == case.first_tensor and c["node"][i] == 0)
    element, of_sample, sample, source = sample_of(f, case.first_tensor, root)
    places, name = [], ""
    for i in range(s.rows):
        first, n = int(s["first_sample"][i]), int(s["samples"][i])
        if int(s["source"][i]) != source or not first <= sample < first + n:
            continue
        name = f.trace.text_of(s["name"][i])
        part, file, columns = (f.trace.text_of(s[column][i]) for column in ("part", "file", "columns"))
        line = int(s["first_row"][i]) + (sample - first) * int(s["row_step"][i])
        places.append((f"{part} in {file}, row {line} (from 0), ", columns.split(",")))
    whole = [(place, columns) for place, columns in places if len(columns) == of_sample]
    if len(whole) == 1:
        places = [(place, columns[element : element + 1]) for place, columns in whole]
    places = [place + columns_text(columns) for place, columns in places]
    return {"element": element, "sample": sample, "name": name, "places": "; ".join(places)}


def columns_text(columns):
    numbers = [int(n) for n in columns]
    return f"column {numbers[0]}" if len(numbers) == 1 else f"columns {numbers[0]} to {numbers[-1]}"


def bad_rows(case, tensor, _=None):
    return case.f.first_row(case.f.rows.bad & case.f.rows_of(tensor))


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


def dropped_from(case, tensor):
    if " set every " in case.finding["title"]:
        return int(zeros_to_the_end(case, tensor)[0])
    return Step(int(case.f.rows.step[numpy.flatnonzero(case.f.rows_of(tensor))[0]]))


def keeps_little(case, match):
    tensors = sparse(case)
    kept, of = kept_of_a_sample(case, tensors[0])
    return Claim(
        {
            "tensor": case.first_name,
            "others": str(len(tensors) - 1) if len(tensors) > 1 else None,
            "kept": general(kept, 3),
            "of": general(of, 6),
            "times": general(1 / (1 - share_dropped(case, tensors[0])), 4),
        },
        it_is_the_named_one=tensors[0] == case.first_tensor,
    )


def died(case, match):
    f, tensors = case.f, dead(case)
    first = min(int(f.rows.step[zeros_to_the_end(case, i)[0]]) for i in tensors)
    return Claim(
        {"n": len(tensors), "tensor": case.first_name, "step": first},
        all_are_named_or_counted=match["n"] is not None or len(tensors) == 1,
    )


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


def padding(case, match):
    of = products(case).values()
    missed = {product[5] for product in of if padded(product) != work(product)}
    return {
        "n": sum(padded(product) != work(product) for product in of),
        "multiple": next(iter(missed)) if len(missed) == 1 else None,
        "times": general(sum(map(padded, of)) / sum(map(work, of)), 3),
    }


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


RULES = {
    "data.nonfinite": Rule(
        [
            (
                r"^The data held NaN or infinity: (?P<batches>one|\d+) batch(?:es)? of (?P<tensor>.+?), first in step (?P<step>\d+)",
                bad_data,
            ),
            (r": element (?P<element>\d+) of sample (?P<sample>\d+) of (?P<name>\S+): (?P<places>.+)\.$", bad_sample),
            (r"--step (?P<step>\d+)`", lambda case, match: {"step": case.f.rows.step[bad_rows(case, case.first_tensor)]}),
        ],
        {
            "batches": lambda case, tensor, _: int((case.f.rows.bad & case.f.rows_of(tensor)).sum()),
            "elements": lambda case, tensor, _: int(case.f.sums("nonfinite", case.f.rows.known)[tensor]),
        },
        bad_rows,
    ),
    "model.dead_output": Rule(
        [
            (
                r"^(?:(?P<n>\d+) activations|(?P<tensor>.+?)) gave nothing but zeros(?:, the first)? from step (?P<step>\d+) to the end",
                died,
            )
        ],
        {"rows_of_zeros_to_the_end": lambda case, tensor, _: len(zeros_to_the_end(case, tensor))},
        lambda case, tensor, _: int(zeros_to_the_end(case, tensor)[0]),
        dead,
    ),
    "model.drops_everything": Rule(
        [
            (r"^(?P<n>\d+) dropouts set", lambda case, match: {"n": len(dead(case))}),
            (
                r"^(?P<tensor>.+?) (?:keeps|and (?P<others>\d+) other dropouts? keep) less than one element of a sample on average, "
                r"(?P<kept>\S+) of (?P<of>\S+), and (?:the first )?makes that (?P<times>\S+) times as large:",
                keeps_little,
            ),
            (r"^Drop a smaller share than (?P<p>\S+)\.$", lambda case, match: {"p": general(share_dropped(case, case.first_tensor), 6)}),
        ],
        {
            "rows_of_zeros_to_the_end": lambda case, tensor, _: len(zeros_to_the_end(case, tensor)),
            "kept_of_a_sample": lambda case, tensor, _: kept_of_a_sample(case, tensor)[0],
            "of_elements": lambda case, tensor, _: kept_of_a_sample(case, tensor)[1],
        },
        lambda case, tensor, _: dropped_from(case, tensor),
        lambda case: dead(case) if " set every " in case.finding["title"] else sparse(case),
    ),
    "tensor_cores.padding": Rule(
        [(r"^(?P<n>\d+) products? in .+ no multiples of (?P<multiple>\d+): .+ (?P<times>\S+) times the work\.", padding)],
        PADDING_VALUES,
    ),
}
