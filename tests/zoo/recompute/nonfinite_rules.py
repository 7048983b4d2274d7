"""Where NaN and infinities came from."""

import math

import numpy

from .sentences import Claim, Shown, general

MATCHED = "became too large for"
DIVIDED = (
    r"(?: (?P<divided>.+) divided by it, and gave zeros in (?P<zero_steps>\d+) steps?\.)?"
    r"(?: (?P<statistic>.+) holds it from step (?P<since>\d+) on: no skipped step undoes that, and evaluation reads it\.)?"
)


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


def divided_by(f, row, match):
    """Which op made zeros of what it divided by, and in how many steps."""
    if match["statistic"] is not None:
        return {"statistic": None, "since": f.rows.step[f.beginnings.statistic[int(f.rows.tensor[row])]]}
    if match["divided"] is None:
        return {"divided": None, "zero_steps": None}
    steps, first = f.beginnings.zeros.get(int(f.rows.tensor[row]), (set(), None))
    op = first is not None and f.trace.text_of(f.tables.ops["name"][f.tensors.op[first]])
    return {"divided": match["divided"] if op and op in match["divided"] else op, "zero_steps": len(steps)}


def became_too_large(case, match):
    f, row = case.f, origin_of(case)
    r = f.rows
    return Claim(
        {
            "tensor": case.first_name,
            "step": r.step[row],
            "elements": r.became_infinite[row],
            "all": len(f.nonfinite_tensors),
            "type": f.format_of(r.tensor[row]).name,
            **divided_by(f, row, match),
        },
        the_named_tensor_is_the_first=case.first_tensor == r.tensor[row],
        its_values_were_finite_before_the_rounding=bool(r.finite_before[row]),
    )


def held_nonfinite(case, match):
    f = case.f
    is_first = match["which"] is None or match["which"] == "The first"
    return Claim(
        {
            "all": len(f.nonfinite_tensors),
            "which": None,
            "step": f.rows.step[origin_of(case)],
            "tensor": case.first_name.removesuffix(" in evaluation"),  # which is told of any tensor of it
            "none": None,
            **divided_by(f, origin_of(case), match),
        },
        the_named_tensor_is_the_origin=case.first_tensor == f.rows.tensor[origin_of(case)],
        no_NaN_or_infinity_was_before_it=is_first == (origin_of(case) <= min(f.beginnings.began_of.values())),
        nothing_of_it_reached_a_weight=match["none"] is None or not f.reached_weights,
    )


def sum_before_rounding(case, match):
    f = case.f
    root, _ = story(case)
    c = f.tables.captures
    value, fmt = float(c["partial_sum"][root]), f.format_of(f.rows.tensor[origin_of(case)])
    return Claim(
        {"element": c["element"][root], "terms": c["terms"][root], "value": general(value, 6)},
        this_was_the_sum_of_all_terms=int(c["broke_at"][root]) == -1,
        rounding_this_gives_what_is_not_finite=abs(value) >= fmt.largest + fmt.ulp_of_largest / 2,
    )


def sum_before_it_broke(case, match):
    root, _ = story(case)
    c = case.f.tables.captures
    broke_at = int(c["broke_at"][root])
    return Claim(
        {
            "element": c["element"][root],
            "terms": c["terms"][root],
            "first": broke_at,
            "value": general(float(c["partial_sum"][root]), 6),
        },
        the_sum_broke_at_a_term=broke_at > 0,
    )


def sum_broke_at_once(case, match):
    root, _ = story(case)
    c = case.f.tables.captures
    return Claim(
        {"element": c["element"][root], "terms": c["terms"][root]}, the_first_term_broke_it=int(c["broke_at"][root]) == 0
    )


def other_capture(case, match):
    """The last step before the origin's, or else the first one behind it, in which an element of its tensor was captured."""
    f, row = case.f, origin_of(case)
    steps = sorted({int(s) for s in f.tables.captures["step"][f.tables.captures["tensor"] == f.rows.tensor[row]]})
    before = [step for step in steps if step <= f.rows.step[row]]
    return {"step": before[-1] if before else steps[0]}


def element_is(case, match):
    f = case.f
    root, operands = story(case)
    c = f.tables.captures
    value = float(c["value"][root])
    shown = "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    row = f.rows.op[origin_of(case)]
    op = f.trace.text_of(f.tables.ops["name"][row])
    factor = f.trace.attribute(row, "factor") if op == "scale" else None
    arguments = [general(float(c["value"][row]), 6) for row in sorted(operands, key=lambda row: c["operand"][row])]
    texts = [text.removesuffix(" read as 0") for text in match["arguments"].split(", ")]
    return Claim(
        {"element": c["element"][root], "op": op, "arguments": None, "value": shown, "factor": None if factor is None else general(factor, 6)},
        the_operands_are_these=len(texts) == len(arguments) and all(a.fits(t) for a, t in zip(arguments, texts)),
    )


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


def zero_by_rounding(case, match):
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
        if f.tensors.function[made] == "softmax":
            x, largest = float(c["value"][below[0]]), float(c["row_largest"][below[1]])
            exact = math.exp(x - largest)
        else:
            exact = abs(exact_result(f, made, below))
        if exact == 0:
            open_rows += [each for each in below if c["value"][each] == 0]
            continue
        fmt, limit = f.format_of(made), f.flushed_up_to(made)[1]
        return Claim(
            {
                "element": c["element"][row],
                "tensor": None,
                "magnitude": general(exact, 4),
                "type": fmt.name,
                "limit": general(limit, 4),
                "bound": None,
            },
            it_rounds_to_zero=exact <= limit,
            it_is_a_bound=bool(match["bound"]) == (f.tensors.function[made] == "softmax"),
            it_is_told_of_its_op=f.trace.text_of(f.tables.ops["name"][f.tensors.op[made]]) in match["tensor"],
        )
    return Claim({}, a_rounding_made_a_zero=False)


def too_large(case, match):
    f, origin = case.f, origin_of(case)
    exact = exact_result(f, f.rows.tensor[origin], story(case)[1])
    fmt = f.format_of(f.rows.tensor[origin])
    limit = fmt.largest + fmt.ulp_of_largest / 2
    return Claim(
        {"value": general(exact, 6), "type": fmt.name, "limit": general(limit, 6)}, it_is_too_large=abs(exact) >= limit
    )


def sum_limit(case, match):
    fmt = case.f.format_of(case.f.rows.tensor[origin_of(case)])
    return {"type": fmt.name, "limit": general(fmt.largest + fmt.ulp_of_largest / 2, 6)}


def equal_values(case, match):
    root, operands = story(case)
    c = case.f.tables.captures
    count = match.groupdict().get("count")
    rows = [row for row in operands if int(c["row_count"][row]) == int(count or 1)]
    return Claim(
        {"element": c["element"][root], **({"count": None} if count else {}), "value": general(float(c["row_largest"][rows[0]]), 6)},
        all_are_equal=any(c["row_largest"][row] == c["row_smallest"][row] for row in rows),
    )


def masked_row(case, match):
    root, operands = story(case)
    c = case.f.tables.captures
    mask = next(row for row in operands if int(c["operand"][row]) == 1 and int(c["row_count"][row]) > 0)
    return Claim(
        {"element": c["element"][root], "count": int(c["row_count"][mask])},
        is_nan=math.isnan(float(c["value"][root])),
        all_are_masked=float(c["row_smallest"][mask]) > 0,
    )


def exponent(value, digits):
    return Shown(value, lambda x: f"2^{x:.{digits}g}")


def flushed_eps(case, match):
    f = case.f
    tensor = f.rows.tensor[origin_of(case)]
    op = f.tensors.op[tensor]
    up_to = f.flushed_up_to(tensor)[0]
    beta2, eps = f.trace.attribute(op, "beta2"), f.trace.attribute(op, "eps")
    return Claim(
        {
            "type": f.format_of(tensor).name,
            "eps": general(eps, 6),
            "flushed": exponent(math.log2(up_to), 6),
            "gradient": exponent(0.5 * math.log2(up_to / (1 - beta2)), 3),
        },
        eps_is_flushed=eps <= up_to,
    )


def zero_eps(case, match):
    """Adam without eps, in an update of which second moments were zero in that step."""
    f, row = case.f, origin_of(case)
    op = f.tensors.op[f.rows.tensor[row]]
    moments = f.trace.tensor_of_output[(int(f.tables.ops["id"][op]), 2)]
    there = f.rows_of(moments) & (f.rows.step == f.rows.step[row])
    zeros = int(f.rows.zeros[there].sum() + f.rows.flushed[there & f.rows.before].sum())
    return Claim(
        {"zeros": zeros, "eps": 0, "gradients": 0, "above": 0},
        it_is_an_update_of_Adam_without_eps=f.tensors.function[f.rows.tensor[row]] == "adam_update" and f.trace.attribute(op, "eps") == 0,
    )


def squared_gradient(case, match):
    f, (root, operands) = case.f, story(case)
    c, tensor = f.tables.captures, f.rows.tensor[origin_of(case)]
    gradient = next(float(c["value"][row]) for row in operands if c["operand"][row] == 1)
    beta2 = f.trace.attribute(f.tensors.op[tensor], "beta2")
    fmt = f.format_of(tensor)
    limit = fmt.largest + fmt.ulp_of_largest / 2
    square = (1 - beta2) * gradient * gradient
    return Claim(
        {
            "element": c["element"][root],
            "gradient": general(gradient, 6),
            "square": general(square, 6),
            "type": fmt.name,
            "limit": general(limit, 6),
        },
        it_is_too_large=square >= limit,
        it_is_a_second_moment_of_Adam=f.tensors.function[tensor] == "adam_update" and f.tensors.slot[tensor] == 2,
    )


def changed_operand(case, match):
    """An operand of the first capture that is not finite, of a tensor whose rows of that step are."""
    f, (root, operands) = case.f, story(case)
    c, r = f.tables.captures, f.rows
    step = r.step[origin_of(case)]
    for row in operands:
        value, made = float(c["value"][row]), int(c["made_by"][row])
        if math.isfinite(value) or made < 0:
            continue
        rows = f.rows_of(made) & (r.step == step)
        return Claim(
            {
                "element": c["element"][row],
                "value": "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity",
                "tensor": None,
                "op": f.trace.text_of(f.tables.ops["name"][r.op[origin_of(case)]]),
            },
            it_was_finite_where_it_was_written=bool(rows.any()) and not r.bad[rows].any(),
        )
    return Claim({}, an_operand_is_not_finite=False)


def largest_factor(case, match):
    f = case.f
    fmt = f.format_of(f.rows.tensor[origin_of(case)])
    factor = f.trace.attribute(f.rows.op[origin_of(case)], "factor")
    return Claim(
        {"largest": general(fmt.largest, 6), "type": fmt.name}, the_factor_is_larger=abs(factor) >= fmt.largest + fmt.ulp_of_largest / 2
    )


def flushed_addend(case, match):
    """A number that the sum under the divisor had added, of which the cast in between made zero."""
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
            fmt = f.format_of(made)
            least = fmt.smallest_subnormal
            return Claim(
                {"number": general(numbers[0], 6), "type": fmt.name, "least": general(least, 3)},
                it_rounds_to_zero=abs(numbers[0]) <= least / 2,
                it_was_added=f.tensors.function[int(c["made_by"][divisor])] == "add",
                the_sum_is_zero=c["value"][divisor] == 0,
            )
    return Claim({}, a_constant_became_zero=False)


def before_first_op(case, match):
    return {"step": case.f.rows.step[origin_of(case)]}


ORIGIN_TEXT = [
    (
        r"^(?P<tensor>.+?)(?: in \w+)? became too large for (?P<type>\w+) in step (?P<step>\d+), (?P<elements>\d+) elements?: "
        r"(?P<all>\d+) tensors? held NaN or infinity in the run\."
        + DIVIDED,
        became_too_large,
    ),
    (
        r"^(?P<all>\d+) tensors? held NaN or infinity(?P<none>, and none of it reached a weight)?\. (?P<which>The first|The first that did harm), "
        r"in step (?P<step>\d+), (?:is|came in as) (?P<tensor>.+?)(?: in (?:data|forward|loss|optimizer|scaling|evaluation|backward))?\."
        + DIVIDED + "$",
        held_nonfinite,
    ),
    (
        r"Element (?P<element>\d+) is a sum of (?P<terms>\d+) terms? that was (?P<value>\S+) before it was rounded,",
        sum_before_rounding,
    ),
    (r"before it was rounded, and (?P<type>\w+) is infinite from (?P<limit>\S+) on\.", sum_limit),
    (r"Element (?P<element>\d+) is (?P<op>\w+)\((?P<arguments>[^()]*)\)(?: by (?P<factor>\S+))? = (?P<value>-?\w+)[.:]", element_is),
    (r"infinity: (?P<value>\S+) is too large, (?P<type>\w+) is infinite from (?P<limit>\S+) on\.", too_large),
    (r"Element (?P<element>\d+) stands in a row of (?P<count>\d+) values? of which the mask took every one:", masked_row),
    (r"Element (?P<element>\d+) is normalised by itself, the only value of its group, (?P<value>\S+):", equal_values),
    (r"Element (?P<element>\d+) is one of (?P<count>\d+) values that were all (?P<value>\S+):", equal_values),
    (
        r"Element (?P<element>\d+) is a sum of (?P<terms>\d+) terms?: the first (?P<first>\d+) made (?P<value>\S+), and with the next "
        r"one it was no finite number\.",
        sum_before_it_broke,
    ),
    (
        r"Element (?P<element>\d+) is a sum of (?P<terms>\d+) terms?, the first of which is no finite number\.",
        sum_broke_at_once,
    ),
    (r"`ulpscope export \S+ --table captures --step (?P<step>\d+)` shows an element of it in another step", other_capture),
    (
        r"rounded to (?P<type>\w+).*?, which makes eps = (?P<eps>\S+) zero, as all up to (?P<flushed>2\^\S+) are, and \(1 - beta2\) g\^2 too for "
        r"gradients g up to (?P<gradient>2\^-?[\d.]*\d);",
        flushed_eps,
    ),
    (
        r"eps is (?P<eps>0), and so (?:is|are) (?P<zeros>\d+) second moments?, as where all gradients so far were (?P<gradients>0)\. Adam needs an "
        r"eps above (?P<above>0)",
        zero_eps,
    ),
    (
        r"Element (?P<element>\d+) is \(1 - beta2\) g\^2 of a gradient of (?P<gradient>\S+) and what was there: (?P<square>\S+) and more, and "
        r"(?P<type>\w+) is infinite from (?P<limit>\S+) on\.",
        squared_gradient,
    ),
    (
        r"Element (?P<element>\d+) of (?P<tensor>.+?) was finite where it was written, and (?P<value>\S+) where (?P<op>\w+) read it:",
        changed_operand,
    ),
    (
        r"What was added to keep it from that, (?P<number>\S+), became zero: the least number of (?P<type>\w+) is (?P<least>[\d.e-]+\d)\. ",
        flushed_addend,
    ),
    (
        r"Before its rounding the zero was none: element (?P<element>\d+) of (?P<tensor>.+?) was (?P<bound>at most )?(?P<magnitude>\S+), and "
        r"(?P<type>\w+) makes zero of all up to (?P<limit>[\d.e-]+\d)\. ",
        zero_by_rounding,
    ),
    (r"(?P<type>\w+) holds no factor above (?P<largest>\S+?)(?::|\. )", largest_factor),
    (r"before the first op that was recorded in step (?P<step>\d+)", before_first_op),
]


def nonfinite_place(case, tensor, _=None):
    f = case.f
    if tensor == f.rows.tensor[origin_of(case)]:
        return origin_of(case)
    return f.first_row(f.rows.bad & f.rows_of(tensor))


NONFINITE_VALUES = {
    "nan": lambda case, tensor, _: int(case.f.rows.nan[nonfinite_place(case, tensor)]),
    "infinity": lambda case, tensor, _: int(case.f.rows.infinite[nonfinite_place(case, tensor)]),
}
