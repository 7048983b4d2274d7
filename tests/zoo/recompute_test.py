#!/usr/bin/env python3
"""Changes numbers of reports and of traces, one at a time, and sees recompute_numbers.py find each.

usage: recompute_test.py ULPSCOPE
"""

import copy
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile

import recompute_numbers
from recompute.values import phrases_in, sentence_text

EXPERIMENTS = pathlib.Path(__file__).resolve().parent.parent.parent / "experiments"
RUNS = ("loss_scale_too_large", "one_outlier_batch_skipped", "fp8_first_step_saturates", "nan_in_data", "weight_decay_lost_bf16")

OTHERS = ("report_version", "analysis", "title", "sources", "complete", "verdict")
SAMPLED = 20  # numbers of tables and plots, of which there are thousands
# No numbers, though they may hold digits: names, and what is made of values.
NAMES = ("name", "tensor", "nonfinite_tensor", "rounded_after", "gradient_of", "text", "title", "suggestion", "verdict_text", "checked", "advice", "id")
SENTENCES = ("title_sentences", "suggestion_sentences", "verdict_sentences", "checked_sentences")


def numbers(node, place=()):
    """Where the numbers of a report are: the way to a value, and in a text the span of the digits."""
    if isinstance(node, dict) or isinstance(node, list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if key not in NAMES or not isinstance(value, (str, dict)):
                yield from numbers(value, (*place, key))
    elif isinstance(node, (int, float)):
        yield place, None
    elif isinstance(node, str) and node:
        for match in re.finditer(r"\d+", node):
            yield place, match.span()


def changed(report, place, span):
    """The report with another number there."""
    report = copy.deepcopy(report)
    node = report
    for key in place[:-1]:
        node = node[key]
    value = node[place[-1]]
    if span:
        value = value[: span[0]] + str(int(value[span[0] : span[1]]) + 1) + value[span[1] :]
    elif isinstance(value, bool):
        value = not value
    else:
        value = value + 1 if isinstance(value, int) else value * 1.01 + 1e-6
    node[place[-1]] = value
    return retold(report) if any(part in SENTENCES for part in place) else report


def retold(report):
    """With the texts that its sentences come to."""

    def tell(sentences):
        for sentence in sentences:
            for phrase in reversed(list(phrases_in(sentence))):
                phrase["text"] = sentence_text(phrase)
        return " ".join(sentence["text"] for sentence in sentences)

    report["verdict_text"], report["checked"] = tell(report["verdict_sentences"]), tell(report["checked_sentences"])
    told = {}
    for finding in report["findings"]:
        before = finding["title"], finding["suggestion"]
        finding["title"], finding["suggestion"] = told[before] = tell(finding["title_sentences"]), tell(finding["suggestion_sentences"])
    for cause in report["causes"]:
        cause["title"], cause["advice"] = told.get((cause["title"], cause["advice"]), (cause["title"], cause["advice"]))
    return report


def unnoticed_changes(trace, report, whole):
    """Those of a report that is right."""
    facts = [recompute_numbers.Facts(trace)]
    if found := list(recompute_numbers.mistakes(facts, report, whole)):
        yield f"it is wrong as it is: {found[0]}"
        return
    places = [(place, span) for place, span in numbers(report) if place[0] not in OTHERS]
    told = [each for each in places if each[0][0] not in ("tables", "plots")]
    rest = [each for each in places if each[0][0] in ("tables", "plots")]
    for place, span in told + random.Random(0).sample(rest, min(SAMPLED, len(rest))):
        # Tables take their time, and are right but where one is changed.
        one = changed(report, place, span) | ({} if place[0] in ("tables", "plots") else {"tables": [], "plots": []})
        if not list(recompute_numbers.mistakes(facts, one, one if report is whole else whole)):
            yield f"{'/'.join(map(str, place))} {span or ''}"
    facts[0].trace.close()


# Columns, a condition on their rows and what is added to the first such row: each is told of in some report of the runs above.
CHANGES = {
    "loss_scale_too_large": [
        ("stats", "overflowed", lambda t: t["overflowed"] > 0, 1),
        ("steps", "skipped", lambda t: t["skipped"] > 0, -1),
        ("steps", "scale_after", lambda t: t["skipped"] > 0, 4096),
        ("stats", "nan", lambda t: t["nan"] > 0, 1),
        ("captures", "value", lambda t: t["node"] == 1, 4096),
        ("steps", "loss", lambda t: t["step"] == 0, 1),
    ],
    "one_outlier_batch_skipped": [
        ("stats", "step", lambda t: t["overflowed"] > 0, 1),
        ("stats", "flushed", lambda t: t["flushed"] > 0, 100),
        ("stats", "largest", lambda t: t["overflowed"] > 0, 1e6),
        ("stats", "sum_of_squares", lambda t: t["flushed"] > 0, 1e6),
        ("steps", "loss", lambda t: t["step"] == 6, float("nan")),
    ],
    "fp8_first_step_saturates": [
        ("stats", "quantization_scale", lambda t: t["overflowed"] > 0, 1),
        ("stats", "overflowed", lambda t: t["overflowed"] > 0, 1),
    ],
    "nan_in_data": [("batches", "sample", lambda t: t["sample"] == 83, 1), ("captures", "element", lambda t: t["node"] == 0, 1)],
    "weight_decay_lost_bf16": [
        ("parameters", "decay_applied", lambda t: t["step"] == 3, 40),
        ("parameters", "decay_asked", lambda t: t["step"] == 3, 40),
        ("stats", "zeros", lambda t: t["zeros"] > 0, 1),
    ],
}


def unnoticed_in_trace(trace, said, change):
    """Whether no report of the trace as it was is found wrong beside it as it is changed."""
    import h5py

    table, column, where, more = change
    other = trace + ".changed"
    shutil.copy(trace, other)
    with h5py.File(other, "r+") as file:
        values = {name: file[table][name][:] for name in file[table]}
        row = int(where(values).nonzero()[0][0])
        file[table][column][row] = values[column][row].item() + more
    facts = recompute_numbers.Facts(other)
    said = [json.loads(json.dumps(report).replace(trace, other)) for report in said]
    if not any(list(recompute_numbers.mistakes([facts], report, said[0])) for report in said):
        yield f"{table}/{column}, row {row}"
    facts.trace.close()


def main():
    if recompute_numbers.Facts is None:
        print("skipped: h5py or numpy cannot be imported")
        return recompute_numbers.SKIPPED
    program, found = recompute_numbers.Program(str(pathlib.Path(sys.argv[1]).resolve()), EXPERIMENTS), []
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNS:
            trace = str(pathlib.Path(folder) / f"{name}.h5")
            program.told("train", f"failures/{name}.toml", "--threads", "1", "-o", trace)
            said = dict(recompute_numbers.reports(program, [trace]))
            for verb, report in said.items():
                found += [f"{name}: a change of {verb} was not noticed: {what}" for what in unnoticed_changes(trace, report, said["report"])]
            for change in CHANGES[name]:
                found += [
                    f"{name}: a change of the trace was not noticed: {what}"
                    for what in unnoticed_in_trace(trace, said.values(), change)
                ]
    print("\n".join(found) or "every change was noticed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
