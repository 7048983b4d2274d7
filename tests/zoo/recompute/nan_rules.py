"""Where NaN and infinities began and how they went on, as docs/numerics.md has it, against what `ulpscope nan` prints."""

import math

from .facts import KEPT
from .promises import output_of


class Beginnings:
    """Of a trace, in order of execution: by the tensor, the rows in which nothing that its op read was not finite."""

    def __init__(self, f):
        self.f, self.rows, self.reached = f, {}, {}
        r, t, inputs = f.rows, f.tensors, f.trace.inputs
        self.made, self.began_of = {}, {}  # by op and slot: (step, row or None); by bad row: the row in which it began
        call, read = None, None
        for i in range(r.n):
            op, step = int(r.op[i]), int(r.step[i])
            this = (step, int(r.sequence[i]), int(r.micro_batch[i]), int(r.loss_index[i]), op)
            if this != call:
                call, read = this, self.read_by(op, step, inputs.get((int(f.steps.graph[r.place[i]]), op), ()))
            key = (op, int(t.slot[r.tensor[i]]))
            self.made[key] = (step, None)
            if r.nonfinite[i] == 0:
                continue
            if read is None:
                self.rows.setdefault(int(r.tensor[i]), []).append(i)
            self.began_of[i] = i if read is None else self.began_of[read]
            self.made[key] = (step, i)
            began = int(r.tensor[self.began_of[i]])
            role = t.role[r.tensor[i]]
            if role == "loss":
                self.reached.setdefault((began, "loss"), step)
            if role in KEPT:
                self.reached.setdefault((began, "weights"), step)
            if read is None:
                read = i  # the outputs of one call began together

    def read_by(self, op, step, edges):
        found = []
        for _, producer, slot in edges:
            at, row = self.made.get((producer, slot), (None, None))
            if row is not None and (producer >= op or at == step):
                found.append(row)
        # Of several the one that began first.
        return min(found, key=lambda row: self.began_of[row], default=None)


def table_of(report, name):
    return next((table for table in report["tables"] if table["name"] == name), None)


def wrong_beginnings(f, report):
    mine, table = Beginnings(f), table_of(report, "beginnings")
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
            f"reached a weight in step {weights}"
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
