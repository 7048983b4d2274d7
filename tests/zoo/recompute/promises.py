"""What the commands that a report suggests are said to show, held to what they print."""

import csv
import io
import json
import re

from .facts import GRADIENTS
from .said import Said


def rows_of(program, trace, table, *arguments):
    return list(csv.DictReader(io.StringIO(program.told("export", trace, "--table", table, *arguments))))


def output_of(f, tensor):
    """As keys name it: the id of its op in hexadecimal, and the slot."""
    return f"{int(f.tables.ops['id'][f.tensors.op[tensor]]):016x}", int(f.tensors.slot[tensor])


def told(finding, *ids):
    """The sentence of its advice that has one of these templates, or None."""
    return next((Said(each) for each in finding["suggestion_sentences"] if each["id"] in ids), None)


SHOWS_OPERANDS = ("advice.nan_shows_operands", "advice.nan_tries_and_shows_operands")
SHOWS_ELEMENT = ("advice.nan_shows_element", "advice.nan_tries_and_shows_element")


def captures(program, f, finding):
    """An element that was not finite."""
    step = str(told(finding, "advice.export_shows_element")["step"])
    key = finding["evidence"][0]["key"]
    mine = [
        row
        for row in rows_of(program, f.path, "captures", "--step", step)
        if row["op_id"] == key["op"] and int(row["slot"]) == key["slot"]
    ]
    if not any(row["node"] == "0" for row in mine):
        yield f"captures of step {step} show no element of {key['name']}"


def nan(program, f, finding):
    """The element that was not finite, and what it was made of."""
    if not told(finding, *SHOWS_ELEMENT, *SHOWS_OPERANDS):
        return
    key = finding["evidence"][0]["key"]
    report = json.loads(program.told("nan", f.path, "--no-trials", "--json"))
    tables = {table["name"]: table["rows"] for table in report["tables"]}
    shown = tables.get("operands")
    if not shown or (shown[0]["key"]["op"], shown[0]["key"]["slot"]) != (key["op"], key["slot"]):
        yield f"`ulpscope nan` does not show how an element of {key['name']} came about"
    elif told(finding, *SHOWS_OPERANDS) and len(shown) < 2:
        yield f"`ulpscope nan` shows no operand of {key['name']}"


def ranges_of_step(program, f, finding):
    """The tensor with which what reached the loss began, or the first nonfinite one of the step, before all that are finite or hold what
    others made."""
    step = re.search(r"--step (\d+)`", finding["suggestion"])[1]
    shown = json.loads(program.told("ranges", f.path, "--step", step, "--json"))["tables"][0]["rows"]
    began = [row for row in f.origins if f.rows.step[row] == int(step)]
    first = began[0] if began else f.first_row((f.rows.step == int(step)) & (f.rows.nonfinite > 0))
    rows = [(row["key"]["op"], row["key"]["slot"]) for row in shown]
    beginnings = {output_of(f, tensor) for tensor in f.beginnings.rows}
    where = rows.index(output_of(f, f.rows.tensor[first])) if output_of(f, f.rows.tensor[first]) in rows else None
    if where is None or not set(rows[:where]) <= beginnings:
        yield f"ranges of step {step} do not begin with the first nonfinite tensor"


def ranges_of_run(program, f, finding):
    """The first gradient with NaN or infinity, among what is printed."""
    first = f.first_row((f.rows.nonfinite > 0) & f.tensors.is_gradient[f.rows.tensor])
    shown = json.loads(program.told("ranges", f.path, "--json"))["tables"][0]["rows"]
    if first is None or output_of(f, f.rows.tensor[first]) not in [
        (row["key"]["op"], row["key"]["slot"]) for row in shown if row["key"]["role"] in GRADIENTS
    ]:
        yield "ranges do not show the first gradient with NaN or infinity"


def batches(program, f, finding):
    """The samples of a step, among them the one that is named."""
    step = str(told(finding, "advice.export_lists_batch")["step"])
    samples = [row["sample"] for row in rows_of(program, f.path, "batches") if row["step"] == step]
    named = re.search(r"of sample (\d+) of", finding["title"])
    if not samples or (named and named[1] not in samples):
        yield f"batches of step {step} are {samples}, without the sample that is named" if named else f"batches have none of step {step}"


def words(pattern):
    return lambda finding: re.search(pattern, finding["suggestion"])


def says(*ids):
    return lambda finding: any(sentence["id"] in ids for sentence in finding["suggestion_sentences"])


# What findings promise what a check holds them to.
PROMISES = [
    (words(r"`ulpscope nan "), nan),
    (words(r"`ulpscope export \S+ --table captures"), captures),
    (words(r"`ulpscope ranges \S+ --step \d+`"), ranges_of_step),
    (says("advice.overflow_at_any_scale", "advice.look_at_first_nonfinite"), ranges_of_run),
    (words(r"`ulpscope export \S+ --table batches"), batches),
]


def scales_of_fp32(program, f, finding, again):
    """Of a recording in FP32, which loss scales FP16 needs, and where its gradients lie."""
    scale = json.loads(program.told("scale", again, "--json"))
    if scale["fitting_scales_for"] != "fp16" or scale["smallest_fitting_scale"] is None or scale["largest_fitting_scale"] is None:
        yield "the recording in FP32 does not tell which scales fit"
    if says("advice.record_in_fp32")(finding):
        tables = json.loads(program.told("ranges", again, "--format", "fp16", "--json"))["tables"]
        if not any(table["name"] == "what_if_fp16" and table["rows"] for table in tables):
            yield "ranges --format fp16 of the recording in FP32 has no table of FP16"


# For each check a run whose report has to make the promise, so that none goes unchecked.
MADE_BY = {
    nan: "scale_may_not_fall.default",
    captures: "mean_square_and_input_overflow.default",
    ranges_of_step: "diverges_bf16.default",
    ranges_of_run: "sqrt_backward_at_zero_fp16.default",
    batches: "sample_corrupted.default",
    scales_of_fp32: "vanishing_gradients_fp16.default",
}
assert MADE_BY.keys() == {check for _, check in PROMISES} | {scales_of_fp32}


def broken_promises(program, f, report, brief, every, record_fp32, made):
    """`brief` and `every`: the report as text, and with --all. `record_fp32` trains the run again in FP32, and gives the trace. `made`
    gets the checks of the promises that it makes."""
    again = None
    for finding in report["findings"]:
        for is_promised, check in PROMISES:
            if is_promised(finding):
                made.add(check)
                yield from (f"{finding['code']}: {mistake}" for mistake in check(program, f, finding))
        if "in FP32" in finding["suggestion"] and "`ulpscope scale` of" in finding["suggestion"]:
            again = again or record_fp32()
            made.add(scales_of_fp32)
            yield from (f"{finding['code']}: {mistake}" for mistake in scales_of_fp32(program, f, finding, again))
    yield from folded(report, brief, every)


def folded(report, brief, every):
    """With --all every sentence of a title is there. Without, every code above a note is, and the notes are counted."""
    every = " ".join(every.split())
    for finding in report["findings"]:
        for sentence in finding["title_sentences"]:
            if " ".join(sentence["text"].split()) not in every:
                yield f"`report --all` does not show {sentence['text']!r}"
        if finding["severity"] != "info" and finding["code"] not in brief and "more finding" not in brief:
            yield f"the report does not name {finding['code']}"
    counted = sum(int(n) for n in re.findall(r"(\d+) notes?\b", " ".join(brief.split())))
    notes = sum(finding["severity"] == "info" for finding in report["findings"])
    if counted != notes:
        yield f"the report counts {counted} notes, there are {notes}"
