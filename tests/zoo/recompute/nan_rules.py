"""Where NaN and infinities began and how they went on, as docs/numerics.md has it, against what `ulpscope nan` prints."""

import math

from .promises import output_of


def table_of(report, name):
    return next((table for table in report["tables"] if table["name"] == name), None)


def wrong_beginnings(f, report):
    mine, table = f.beginnings, table_of(report, "beginnings")
    if report["beginnings"] != len(mine.rows):
        yield f"{report['beginnings']} beginnings, recomputed {len(mine.rows)}"
    if table is None:
        return
    r = f.rows
    for row in table["rows"]:
        said, key = row["values"], (row["key"]["op"], row["key"]["slot"])
        tensor = next((t for t in mine.rows if output_of(f, t) == key), None)
        if tensor is None:
            yield f"{said['tensor']} is no beginning"
            continue
        rows = mine.rows[tensor]
        expected = {
            "step": int(r.step[rows[0]]),
            "last_step": int(r.step[rows[-1]]),
            "rows": len(rows),
            "nan": int(r.nan[rows].sum()),
            "infinities": int(r.infinite[rows].sum()),
        }
        for name, value in expected.items():
            if said[name] != value:
                yield f"{said['tensor']}: {name} {said[name]}, recomputed {value}"
        weights, loss = mine.reached.get((tensor, "weights")), mine.reached.get((tensor, "loss"))
        became = (
            f"reached weights or states in step {weights}"
            if weights is not None
            else f"reached the loss in step {loss}"
            if loss is not None
            else "its steps were skipped"
            if r.skipped[rows].all()
            else "reached neither loss nor weights"
        )
        if said["became"] != became:
            yield f"{said['tensor']}: {said['became']!r}, recomputed {became!r}"


def wrong_way(f, table):
    """Each stop reads the one before, and its numbers are those of its row."""
    r, ids, before = f.rows, f.tables.ops["id"], None
    for row in table["rows"]:
        said, key = row["values"], row["key"]
        rows = [
            i
            for i in range(r.n)
            if r.step[i] == key["step"]
            and output_of(f, r.tensor[i]) == (key["op"], key["slot"])
            and r.nonfinite[i] == said["nonfinite"]
            and r.count[i] == said["of"]
        ]
        op = next(int(o) for o in range(len(ids)) if f"{int(ids[o]):016x}" == key["op"])
        if not rows or said["nonfinite"] == 0:
            yield f"{table['name']}: no row of {said['tensor']} in step {key['step']} has {said['nonfinite']} of {said['of']}"
        if before is not None and before[0] != op and not any((p, s) == before for _, p, s in f.trace.inputs_of(op)):
            yield f"{table['name']}: {said['tensor']} does not read what stands before it"
        before = (op, key["slot"])


def wrong_headroom(f, report):
    table = table_of(report, "headroom")
    for row in table["rows"] if table else ():
        said, key = row["values"], row["key"]
        tensor = next(t for t in range(f.tensors.n) if output_of(f, t) == (key["op"], key["slot"]))
        bits = {}
        for i in range(f.rows.n):
            if f.rows.tensor[i] == tensor and f.rows.step[i] < report["step"] and f.rows.has_values[i] and f.rows.largest[i] > 0:
                step = int(f.rows.step[i])
                here = math.log2(f.format_of(tensor).largest / f.rows.largest[i])
                bits[step] = min(here, bits.get(step, math.inf))
        steps = sorted(bits)
        # A row of the step itself that came before counts too: the last one then is its.
        last = said["1_before"]
        if steps and last is not None and abs(bits[steps[-1]] - last) > 1e-9 and said["2_before"] is not None:
            last = said["2_before"]
        if steps and last is not None and abs(bits[steps[-1]] - last) > 1e-9:
            yield f"headroom of {said['tensor']} before: {last}, recomputed {bits[steps[-1]]}"


def nan_mistakes(f, report):
    yield from wrong_beginnings(f, report)
    for name in ("way_to_loss", "way_to_weights"):
        if table_of(report, name):
            yield from wrong_way(f, table_of(report, name))
    yield from wrong_headroom(f, report)
