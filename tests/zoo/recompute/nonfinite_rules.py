"""Where NaN and Inf came from."""

import math
import re

import numpy

from .said import Said, number, phrases
from .sentences import Claim

BEGINNINGS = ("overflow.became_too_large", "overflow.one_became_too_large", "range.nonfinite.")


def origin_of(case):
    """The row that a finding is about: the first of the run, or one that did harm."""
    first = case.f.first_row(case.f.rows.bad)
    evidence = case.finding["evidence"][0]
    is_first = (
        first is not None
        and evidence["key"]["step"] == case.f.rows.step[first]
        and case.tensor_of(evidence) == case.f.rows.tensor[first]
    )
    if is_first:
        return first
    if any(each["id"] == "range.nonfinite.filled_in" for each in case.finding["title_sentences"]):
        rows = case.f.rows
        return case.f.first_row(rows.bad & (rows.tensor == case.tensor_of(evidence)) & (rows.step == evidence["key"]["step"]))
    named = [row for row in case.f.origins if case.f.rows.tensor[row] == case.tensor_of(evidence)]
    return named[0] if named else case.f.origin


def story(case):
    """The first capture of the origin's tensor in its step: its root and the root's operands."""
    f, origin = case.f, origin_of(case)
    c, r = f.tables.captures, f.rows
    rows = numpy.flatnonzero(
        (c["step"] == r.step[origin]) & (c["tensor"] == r.tensor[origin]) & (c["micro_batch"] == r.micro_batch[origin])
    )
    roots = [i for i, row in enumerate(rows) if c["node"][row] == 0]
    if not roots:
        return None, []
    tree = rows[roots[0] : roots[1] if len(roots) > 1 else None]
    return tree[0], [row for row in tree[1:] if c["parent"][row] == 0]


def begins(case):
    """Whether the finding says where NaN and Inf began."""
    return any(each["id"].startswith(BEGINNINGS) for each in case.finding["title_sentences"])


def name_of_place(said):
    """What a phrase calls a tensor, as evidence does: of one that is called like its module the word stands there once."""
    what = said.get("what")
    return f"{said['name']} {what}" if what else said["name"]


def is_called(said, name):
    words = [re.sub(r"[(),]", "", each) for each in (name_of_place(said), name)]
    return words[0] == words[1] or words[1] == f"{words[0]} {words[0]}"


def format_name(f, tensor):
    return f.format_of(tensor).name.upper()


# Titles.


def tells_the_origin(case, said, place="place"):
    """Of the row that a finding is about: which it is, and how much of it."""
    f, row = case.f, origin_of(case)
    return {
        "the_named_tensor_is_the_origin": case.first_tensor == f.rows.tensor[row] and is_called(said[place], case.first_name),
        "the_pass_is_its_op_s": said[place].get("pass") in (None, f.tensors.phase[f.rows.tensor[row]]),
    }


PASSES = {
    "pass.forward": ("forward", "recompute"),
    "pass.loss": ("loss",),
    "pass.backward": ("backward",),
    "pass.scaling": ("scaling",),
    "pass.optimizer": ("optimizer",),
    "pass.evaluation": ("evaluation",),
    "pass.data": ("data",),
}


def overflow(case, said):
    f, row = case.f, origin_of(case)
    r = f.rows
    numbers = {"step": int(r.step[row]), "format": format_name(f, r.tensor[row])}
    if "count" in said.values:
        numbers |= {"elements": int(r.became_infinite[row]), "count": int(r.count[row])}
    return Claim(
        numbers,
        its_values_were_finite_before_the_rounding=bool(r.finite_before[row]),
        it_is_in_that_pass=f.tensors.phase[r.tensor[row]] in PASSES[said["pass"].id],
        it_is_all_there_was="count" in said.values or r.count[row] == 1,
        **tells_the_origin(case, said),
    )


# Whether there are NaN, and Inf.
KINDS = {"nonfinite.nan": (True, False), "nonfinite.inf": (False, True), "nonfinite.nan_and_inf": (True, True)}


def kind_fits(f, row, said):
    return KINDS[said["kind"].id] == (bool(f.rows.nan[row]), bool(f.rows.infinite[row]))


def row_held(case, said):
    r, row = case.f.rows, origin_of(case)
    return {"elements": int(r.nonfinite[row]), "count": int(r.count[row])}


def first_nonfinite(case, said):
    f, row = case.f, origin_of(case)
    is_first = row <= min(f.beginnings.began_of.values())
    numbers = {"step": int(f.rows.step[row])} | (row_held(case, said) if "count" in said.values else {})
    return Claim(
        numbers,
        it_held_that="kind" not in said.values or kind_fits(f, row, said),
        no_NaN_or_Inf_was_before_it=(said["harm"] is None) == is_first,
        it_is_one_element="count" in said.values or f.rows.count[row] == 1,
        **tells_the_origin(case, said),
    )


def logs_of_zero(case, said):
    f, row = case.f, origin_of(case)
    stats = f.tables.stats
    all_are = int(stats["negative_infinity"][row]) == int(f.rows.nonfinite[row])
    return Claim(first_nonfinite(case, said), all_are_logs_of_zero=all_are and f.tensors.function[f.rows.tensor[row]] == "log")


def second_moment(case, said):
    f, row = case.f, origin_of(case)
    return Claim(
        {"step": int(f.rows.step[row]), "format": format_name(f, f.rows.tensor[row]), **row_held(case, said)}, **tells_the_origin(case, said)
    )


def came_in(case, said):
    f, row = case.f, origin_of(case)
    return Claim(
        {"step": int(f.rows.step[row]), **row_held(case, said)},
        it_held_that=kind_fits(f, row, said),
        nothing_of_the_recording_made_it=f.tensors.function[f.rows.tensor[row]] == "source",
        **tells_the_origin(case, said),
    )


def becomes(case, said):
    f, row = case.f, origin_of(case)
    return Claim(row_held(case, said), it_held_that=kind_fits(f, row, said), **tells_the_origin(case, said))


def divided_by(case, said):
    """Which op made zeros of what it divided by, and in how many steps."""
    f = case.f
    steps, first = f.beginnings.zeros[int(f.rows.tensor[origin_of(case)])]
    op = f.trace.text_of(f.tables.ops["name"][f.tensors.op[first]])
    return Claim({"zeros": len(steps), "steps": f.steps.n}, this_op_did=op in name_of_place(said["place"]))


def statistic_holds(case, said):
    f = case.f
    row = f.beginnings.statistic[int(f.rows.tensor[origin_of(case)])]
    name = f.trace.text_of(f.tables.tensors["parameter"][f.rows.tensor[row]])
    return Claim({"step": int(f.rows.step[row])}, this_statistic_does=not name or is_called(said["place"], name))


# The arithmetic of an element.


def exact_result(f, tensor, operands):
    """What the captured operands of an element of that tensor come to in FP64."""
    c = f.tables.captures
    x, *rest = [float(c["value"][row]) for row in sorted(operands, key=lambda row: c["operand"][row])]
    factor = f.trace.attribute(f.tensors.op[tensor], "factor")
    return {
        "cast": lambda: x,
        "add": lambda: x + rest[0],
        "sub": lambda: x - rest[0],
        "mul": lambda: x * rest[0],
        "div": lambda: x / rest[0],
        "reciprocal": lambda: 1 / x,
        "exp": lambda: math.exp(x),
        "scale": lambda: x * factor,
    }[f.tensors.function[tensor]]()


def indices(c, row):
    shape = [int(n) for n in text_of_shape(c, row)]
    return [int(i) for i in numpy.unravel_index(int(c["element"][row]), shape)]


def text_of_shape(c, row):
    return [n for n in c.text_of(c["shape"][row]).split(",") if n]


def at_indices(case, said):
    return {"indices": indices(case.f.tables.captures, story(case)[0])}


def at_number(case, said):
    return {"number": int(case.f.tables.captures["element"][story(case)[0]])}


def only_element(case, said):
    c = case.f.tables.captures
    return Claim(it_is_the_only_one=all(int(n) == 1 for n in text_of_shape(c, story(case)[0])))


OPERATORS = {"cause.sum_of": ("add",), "cause.difference_of": ("sub",), "cause.product_of": ("mul", "scale"), "cause.quotient_of": ("div",)}


def operands_told(expression):
    if "operands" in expression.values:
        return [each["value"] for each in expression["operands"]]
    if "first" in expression.values:
        return [expression[name]["value"] for name in ("first", "second")]
    return [expression["value"]]


def expression_is_right(case, expression):
    """Of the element that was captured: its op, and its operands in their order."""
    f = case.f
    c, (_, operands) = f.tables.captures, story(case)
    op = f.rows.op[origin_of(case)]
    function = f.tensors.function[f.rows.tensor[origin_of(case)]]
    values = [float(c["value"][row]) for row in sorted(operands, key=lambda row: c["operand"][row])]
    if function == "scale":
        values.append(f.trace.attribute(op, "factor"))
    is_its_op = function in OPERATORS.get(expression.id, (function,)) and expression.get("op") in (None, f.trace.text_of(f.tables.ops["name"][op]))
    return is_its_op and values == operands_told(expression)


def operation(case, said):
    value = float(case.f.tables.captures["value"][story(case)[0]])
    return Claim({"result": value}, the_op_and_its_operands_are_these=expression_is_right(case, said["expression"]))


def too_large(case, said):
    f, origin = case.f, origin_of(case)
    exact = exact_result(f, f.rows.tensor[origin], story(case)[1])
    return Claim(
        {"exact": exact} if "exact" in said.values else {},
        the_op_and_its_operands_are_these=expression_is_right(case, said["expression"]),
        it_is_too_large=abs(exact) >= limit_of(f.format_of(f.rows.tensor[origin])),
    )


def exactly_too_large(case, said):
    """What stands at both sides of the sign is all of their values."""
    operands = [each["values"]["value"]["value"] for each in phrases(said.values["expression"]) if "value" in each["values"]]
    claim = too_large(case, said)
    claim.holds["all_digits_are_there"] = float(f"{claim['exact']:.10g}") == claim["exact"] and all(
        float(f"{number(each):.6g}") == number(each) for each in operands
    )
    return claim


def limit_of(fmt):
    return fmt.largest + fmt.ulp_of_largest / 2


def format_max(name, sign):
    def recompute(case, said):
        tensor = case.f.rows.tensor[origin_of(case)]
        return {name: sign * case.f.format_of(tensor).largest, "format": format_name(case.f, tensor)}

    return recompute


def largest_before(case, said):
    f, row = case.f, origin_of(case)
    value = float(f.rows.largest[row])
    return Claim({"value": value}, it_is_too_large=value >= limit_of(f.format_of(f.rows.tensor[row])))


# Sums.


def sum_at_once(case, said):
    c, (root, _) = case.f.tables.captures, story(case)
    return Claim({"terms": int(c["terms"][root])}, the_first_term_broke_it=int(c["broke_at"][root]) == 0)


def sum_up_to(case, said):
    c, (root, _) = case.f.tables.captures, story(case)
    broke_at = int(c["broke_at"][root])
    return Claim(
        {"before": broke_at, "terms": int(c["terms"][root]), "partial": float(c["partial_sum"][root])}, it_broke_at_a_term=broke_at > 0
    )


def whole_sum(case, said):
    f = case.f
    c, (root, _) = f.tables.captures, story(case)
    value = float(c["partial_sum"][root])
    return Claim(
        {"terms": int(c["terms"][root]), "partial": value},
        it_is_the_sum_of_all_terms=int(c["broke_at"][root]) == -1,
        it_is_too_large=abs(value) >= limit_of(f.format_of(f.rows.tensor[origin_of(case)])),
    )


def scaled_sum(case, said):
    f = case.f
    c, (root, operands) = f.tables.captures, story(case)
    first, second = (next(float(c["value"][row]) for row in operands if c["operand"][row] == number) for number in (2, 3))
    value = float(c["partial_sum"][root])
    return Claim(
        {"terms": int(c["terms"][root]), "partial": value, "first": first, "second": second, "scaled": value * first * second},
        it_is_too_large=abs(value * first * second) >= limit_of(f.format_of(f.rows.tensor[origin_of(case)])),
    )


# Norms.


def equal_values(case, said):
    c, (_, operands) = case.f.tables.captures, story(case)
    count = said.get("values") or 1
    rows = [row for row in operands if int(c["row_count"][row]) == count]
    return Claim(
        {"value": float(c["row_largest"][rows[0]])} | ({"values": count} if "values" in said.values else {}),
        all_are_equal=any(c["row_largest"][row] == c["row_smallest"][row] for row in rows),
        there_is_no_eps=case.f.trace.attribute(case.f.rows.op[origin_of(case)], "eps") == 0,
    )


def masked_row(case, said):
    c, (root, operands) = case.f.tables.captures, story(case)
    mask = next(row for row in operands if int(c["operand"][row]) == 1 and int(c["row_count"][row]) > 0)
    return Claim(
        {"values": int(c["row_count"][mask])},
        it_is_NaN=math.isnan(float(c["value"][root])),
        all_are_masked=float(c["row_smallest"][mask]) > 0,
    )


# Optimizers.


def flushed_epsilon(case, said):
    f, row = case.f, origin_of(case)
    tensor = f.rows.tensor[row]
    op, up_to = f.tensors.op[tensor], f.flushed_up_to(tensor)[0]
    beta2, eps = f.trace.attribute(op, "beta2"), f.trace.attribute(op, "eps")
    return Claim(
        {
            "step": int(f.rows.step[row]),
            "format": format_name(f, tensor),
            "eps": eps,
            "gradient": 0.5 * math.log2(up_to / (1 - beta2)),
        },
        eps_is_flushed=eps <= up_to,
        it_is_an_update_of_Adam=f.tensors.function[tensor] == "adam_update",
    )


def zero_moments(case, said):
    """Adam without eps, in an update of which second moments were zero in that step."""
    f, row = case.f, origin_of(case)
    op = f.tensors.op[f.rows.tensor[row]]
    moments = f.trace.tensor_of_output[(int(f.tables.ops["id"][op]), 2)]
    there = f.rows_of(moments) & (f.rows.step == f.rows.step[row])
    zeros = int(f.rows.zeros[there].sum() + f.rows.flushed[there & f.rows.before].sum())
    return Claim(
        {"step": int(f.rows.step[row]), "moments": zeros, "count": int(f.rows.count[there].sum())},
        it_is_an_update_of_Adam_without_eps=f.tensors.function[f.rows.tensor[row]] == "adam_update" and f.trace.attribute(op, "eps") == 0,
    )


def squared_gradient(case, said):
    f, (_, operands) = case.f, story(case)
    c, tensor = f.tables.captures, f.rows.tensor[origin_of(case)]
    gradient = next(float(c["value"][row]) for row in operands if c["operand"][row] == 1)
    square = (1 - f.trace.attribute(f.tensors.op[tensor], "beta2")) * gradient * gradient
    return Claim(
        {"gradient": gradient, "square": square},
        it_is_too_large=square >= limit_of(f.format_of(tensor)),
        it_is_a_second_moment_of_Adam=f.tensors.function[tensor] == "adam_update" and f.tensors.slot[tensor] == 2,
    )


# Memory.


def changed_operand(case, said):
    """An operand of the first capture that is not finite, of a tensor whose rows of that step are."""
    f, (_, operands) = case.f, story(case)
    c, r = f.tables.captures, f.rows
    step = r.step[origin_of(case)]
    for row in operands:
        value, made = float(c["value"][row]), int(c["made_by"][row])
        if math.isfinite(value) or made < 0:
            continue
        rows = f.rows_of(made) & (r.step == step)
        return Claim(
            {"value": value, "op": f.trace.text_of(f.tables.ops["name"][r.op[origin_of(case)]])},
            it_was_finite_where_it_was_written=bool(rows.any()) and not r.bad[rows].any(),
            this_is_the_element=said["element"].get("indices") == indices(c, row) or said["element"].get("number") == c["element"][row],
        )
    return Claim(an_operand_is_not_finite=False)


# Zeros that were none.


def zero_by_rounding(case, said):
    """The zero that is nearest above the origin and whose exact result is none. Of a softmax a bound of it: the sum that it divides by is
    at least 1."""
    f = case.f
    c = f.tables.captures
    root, operands = story(case)
    rows = numpy.flatnonzero((c["step"] == c["step"][root]) & (c["tensor"] == c["tensor"][root]) & (c["micro_batch"] == c["micro_batch"][root]))
    roots = [row for row in rows if c["node"][row] == 0]
    tree = [row for row in rows if row > root and (len(roots) == 1 or row < roots[1])]
    open_rows = [row for row in operands if c["value"][row] == 0]
    while open_rows:
        row = open_rows.pop(0)
        made, below = int(c["made_by"][row]), [each for each in tree if c["parent"][each] == c["node"][row]]
        if made < 0 or not below:
            continue
        is_bound = f.tensors.function[made] == "softmax"
        exact = (
            math.exp(float(c["value"][below[0]]) - float(c["row_largest"][below[1]])) if is_bound else abs(exact_result(f, made, below))
        )
        if exact == 0:
            open_rows += [each for each in below if c["value"][each] == 0]
            continue
        limit = f.flushed_up_to(made)[1]
        return exact, Claim(
            {"element": int(c["element"][row]), "magnitude": exact, "format": format_name(f, made), "flushed": limit},
            it_rounds_to_zero=exact <= limit,
            it_is_a_bound=(said.id == "cause.zero_was_flushed_at_most") == is_bound,
            it_is_told_of_its_op=f.trace.text_of(f.tables.ops["name"][f.tensors.op[made]]) in name_of_place(said["place"]),
        )
    return None, Claim(a_rounding_made_a_zero=False)


def smallest_eps(case, said):
    """The format of the origin makes zero of any eps up to there."""
    tensor = case.f.rows.tensor[origin_of(case)]
    return {"format": format_name(case.f, tensor), "flushed": case.f.flushed_up_to(tensor)[0]}


def special_rate(case, said):
    """The learning rates of the op's updates, by the table of parameters."""
    f, row = case.f, origin_of(case)
    p = f.tables.parameters
    of_op = numpy.isin(p["tensor"], numpy.flatnonzero(f.tensors.op == f.rows.op[row]))
    here = p["learning_rate"][of_op & (p["step"] == f.rows.step[row])]
    before = p["learning_rate"][of_op & (p["step"] < f.rows.step[row])]
    if said.id == "cause.rate_was":
        return {"before": before[numpy.isfinite(before)][-1]}
    return Claim(it_is_not_finite=len(here) > 0 and not numpy.isfinite(here).any())


def flushed_addend(case):
    """A number that the sum under the divisor had added, of which the cast in between made zero, and that cast's tensor."""
    f = case.f
    c = f.tables.captures
    root, _ = story(case)
    roots = numpy.flatnonzero(c["node"] == 0)
    tree = range(root, next((row for row in roots if row > root), len(c["node"])))

    def operands(row):
        return [each for each in tree if each != root and c["parent"][each] == c["node"][row]]

    for divisor in operands(root):
        for cast in operands(divisor):
            made = int(c["made_by"][cast])
            numbers = [float(c["value"][each]) for each in operands(cast) if c["made_by"][each] < 0 and c["value"][each] != 0]
            if made < 0 or c["value"][cast] != 0 or f.tensors.function[made] != "cast" or not numbers:
                continue
            is_added = f.tensors.function[int(c["made_by"][divisor])] == "add" and c["value"][divisor] == 0
            return (numbers[0], f.format_of(made)) if is_added else None
    return None


def addend(case, said):
    number, fmt = flushed_addend(case) or (math.nan, None)
    least = fmt.smallest_subnormal if fmt else math.nan
    return Claim({"addend": number, "smallest": least}, it_rounds_to_zero=abs(number) <= least / 2)


# Advice.


def subtracted_largest(case, said):
    """Some op divides by a sum of what exp gave."""
    edges, names = case.f.tables.edges, case.f.tables.ops.words("function")
    exp = case.f.rows.op[origin_of(case)]
    uses = list(zip(*(edges[name].tolist() for name in ("producer", "consumer", "input"))))

    def casts(ops):
        while more := {to for of, to, _ in uses if of in ops and names[to] in ("cast", "copy")} - ops:
            ops |= more
        return ops

    sums = casts({to for of, to, _ in uses if of in casts({int(exp)}) and names[to] == "sum"})
    divides = [names[to] == "reciprocal" or (names[to] == "div" and number == 1) for of, to, number in uses if of in sums]
    return Claim(something_is_divided_by_the_sum=any(divides))


def factor(case, said):
    f = case.f
    fmt, now = f.format_of(f.rows.tensor[origin_of(case)]), f.trace.attribute(f.rows.op[origin_of(case)], "factor")
    numbers = {"factor": now, "proposed": math.copysign(1e4, now)}
    return Claim(
        numbers | ({"largest": fmt.largest} if "largest" in said.values else {}),
        the_type_does_not_hold_it=abs(now) >= limit_of(fmt),
        it_holds_what_is_proposed=1e4 <= fmt.largest,
    )


def other_capture(case, said):
    """The last step before the origin's, or else the first one behind it, in which an element of its tensor was captured."""
    f, row = case.f, origin_of(case)
    steps = sorted({int(s) for s in f.tables.captures["step"][f.tables.captures["tensor"] == f.rows.tensor[row]]})
    before = [step for step in steps if step <= f.rows.step[row]]
    return {"step": before[-1] if before else steps[0]}


def changes(case, said):
    return {"changes": len(case.finding["changes"])}


def nothing(case, said):
    """A sentence in which names alone have digits."""
    return {}


def some_value(case, said):
    """Held to the captures with the sentence that it stands in."""
    return {"value": None}


def filled_in(case, said):
    """An op before the one that made NaN filled infinities in."""
    f, row = case.f, origin_of(case)
    fills = [r for r in range(row) if f.rows.infinite[r] > 0 and f.tensors.function[f.rows.tensor[r]] in ("fill", "masked_fill")]
    return Claim(it_holds_nan=f.rows.nan[row] > 0, some_op_filled_them_in=bool(fills))


def holds_nan(case, said):
    return Claim(it_holds_nan=case.f.rows.nan[origin_of(case)] > 0)


def steps_without_ops(case):
    """Steps without ops right before the origin's."""
    step = int(case.f.rows.step[origin_of(case)])
    table = case.f.tables.steps
    before = table["step"][table["step"] < step]
    recorded = table["step"][(table["step"] < step) & (table["level"] != 0)]
    return before[before > (recorded.max() if len(recorded) else -1)]


def came_out(case, said):
    """The claim on an op of the kind opaque: what its row held, and where it stands."""
    f, row = case.f, origin_of(case)
    ops, op = f.tables.ops, f.rows.op[row]
    place = [each["module"] if isinstance(each, Said) else each for each in said["where"] or []]
    module, location = f.trace.text_of(ops["module"][op]), f.trace.text_of(ops["location"][op])
    phase = f.tensors.phase[f.rows.tensor[row]]
    return Claim(
        it_is_that_op=said["op"] == f.trace.text_of(ops["name"][op]),
        it_stands_there=place == [each for each in (location, module, "" if phase == "forward" else phase) if each],
    )


def came_out_in_step(case, said):
    return {"step": int(case.f.rows.step[origin_of(case)]), **row_held(case, said)}


SAID = {
    "range.nonfinite.came_out_in_step": came_out_in_step,
    "cause.came_out": came_out,
    "overflow.became_too_large": overflow,
    "overflow.one_became_too_large": overflow,
    "range.nonfinite.first": first_nonfinite,
    "range.nonfinite.first_of_one": first_nonfinite,
    "range.nonfinite.first_log_of_zero": logs_of_zero,
    "range.nonfinite.second_moment": second_moment,
    "range.nonfinite.came_in": came_in,
    "range.nonfinite.becomes": becomes,
    "range.nonfinite.harmless": lambda case, said: Claim(none_of_it_reached_a_weight=not case.f.reached_weights),
    "range.nonfinite.filled_in": filled_in,
    "nonfinite.tensors": lambda case, said: {"tensors": len(case.f.nonfinite_tensors)},
    "nonfinite.tensors_began": lambda case, said: {"tensors": len(case.f.nonfinite_tensors), "beginnings": len(case.f.beginnings.rows)},
    "nonfinite.tensors_each": lambda case, said: Claim(
        {"tensors": len(case.f.nonfinite_tensors)}, it_began_in_each=len(case.f.beginnings.rows) == len(case.f.nonfinite_tensors)
    ),
    "nonfinite.divided_by_it": divided_by,
    "nonfinite.statistic_holds_it": statistic_holds,
    "cause.at_indices": at_indices,
    "cause.at_number": at_number,
    "cause.only_element": only_element,
    "cause.element_by_indices": lambda case, said: {"indices": None},
    "cause.element_by_number": lambda case, said: {"number": None},
    "cause.operand": some_value,
    "cause.negative_operand": some_value,
    "cause.special_operand": some_value,
    "cause.operand_read_as_zero": some_value,
    "cause.operation": operation,
    "cause.too_large": exactly_too_large,
    "cause.about_too_large": too_large,
    "cause.cast_too_large": too_large,
    "cause.exceeds": format_max("largest", 1),
    "cause.is_below": format_max("least", -1),
    "cause.largest_before_rounding": largest_before,
    "cause.exceeded": format_max("largest", 1),
    "cause.sum_exceeded": format_max("largest", 1),
    "cause.exponentials": format_max("largest", 1),
    "cause.first_term": sum_at_once,
    "cause.terms_up_to": sum_up_to,
    "cause.whole_sum": whole_sum,
    "cause.scaled_sum": scaled_sum,
    "cause.masked_row": masked_row,
    "cause.masked_rows": lambda case, said: Claim(it_weighs_rows=case.f.tensors.function[case.f.rows.tensor[origin_of(case)]] in ("softmax", "log_softmax")),
    "cause.puts_infinity": lambda case, said: {"value": case.f.trace.attribute(case.f.rows.op[origin_of(case)], "value")},
    "cause.running_statistic": format_max("largest", 1),
    "cause.zero_times_infinity_by_rows": holds_nan,
    "cause.infinity_minus_infinity_by_rows": holds_nan,
    "cause.no_weight_of_targets": holds_nan,
    "cause.norm_of_one": equal_values,
    "cause.norm_of_equal": equal_values,
    "cause.rms_of_one": equal_values,
    "cause.rms_of_equal": equal_values,
    "cause.epsilon_flushed": flushed_epsilon,
    "cause.update_math": nothing,
    "cause.denominator_underflow": zero_moments,
    "cause.why_zero_moments": nothing,
    "cause.second_moment_overflow": squared_gradient,
    "cause.no_target": nothing,
    "cause.no_probability": nothing,
    "cause.memory_changed": nothing,
    "cause.came_unrecorded": lambda case, said: {"first": int(steps_without_ops(case)[0]), "last": int(steps_without_ops(case)[-1])},
    "cause.may_be_older": lambda case, said: {"step": int(steps_without_ops(case)[-1])},
    "advice.record_all_steps": lambda case, said: {"step": int(steps_without_ops(case)[0])},
    "cause.operand_changed": changed_operand,
    "cause.zero_was_flushed": lambda case, said: zero_by_rounding(case, said)[1],
    "cause.zero_was_flushed_at_most": lambda case, said: zero_by_rounding(case, said)[1],
    "cause.addend_flushed": addend,
    "advice.raise_addend": addend,
    "advice.fp32_keeps": lambda case, said: {"magnitude": zero_by_rounding(case, case.said("cause.zero_was_flushed"))[0]},
    "advice.subtract_largest": subtracted_largest,
    "advice.finite_factor": factor,
    "advice.factor_in_range": factor,
    "advice.eps_too_small": smallest_eps,
    "cause.rate_is_special": special_rate,
    "cause.rate_was": special_rate,
    "advice.raise_logit_eps": lambda case, said: {"eps": case.f.trace.attribute(case.f.rows.op[origin_of(case)], "eps")},
    "advice.larger_epsilon_of_norm": lambda case, said: {"eps": case.f.trace.attribute(case.f.rows.op[origin_of(case)], "eps")},
    "advice.export_shows_element": other_capture,
    "advice.nan_tries": changes,
    "advice.nan_tries_and_shows_element": changes,
    "advice.nan_tries_and_shows_operands": changes,
} | dict.fromkeys(
    (
        "advice.bound_exponent",
        "advice.cast_before",
        "advice.cast_later",
        "advice.check_schedule",
        "advice.keep_argument",
        "advice.keep_base",
        "advice.keep_divisor",
        "advice.keep_modules_wide",
        "advice.keep_module_in_fp32",
        "advice.keep_log1p",
        "advice.logs_from_logits",
        "advice.sum_of_logs",
        "advice.keep_positive",
        "advice.keep_probability",
        "advice.keep_power_real",
        "advice.leave_cast_out",
        "advice.leave_targets",
        "advice.masters_have_moments",
        "advice.masters_or_fp32_update",
        "advice.moments_underflow",
        "advice.nan_shows_element",
        "advice.nan_shows_operands",
        "advice.nan_on_purpose",
        "advice.needs_epsilon",
        "advice.end_with_sigmoid",
        "advice.fill_finite",
        "advice.keep_batches_with_targets",
        "advice.leave_one_value",
        "advice.wide_statistics",
        "advice.no_type_helps",
        "advice.train_in_fp32",
        "advice.train_wide",
    ),
    nothing,
)


def nonfinite_place(case, tensor, _=None):
    f = case.f
    if tensor == f.rows.tensor[origin_of(case)]:
        return origin_of(case)
    return f.first_row(f.rows.bad & f.rows_of(tensor))


NONFINITE_VALUES = {
    "nan": lambda case, tensor, _: int(case.f.rows.nan[nonfinite_place(case, tensor)]),
    "infinity": lambda case, tensor, _: int(case.f.rows.infinite[nonfinite_place(case, tensor)]),
}
