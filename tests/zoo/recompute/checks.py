"""Holds a report, as JSON, to its traces."""

import json
import math
import re

from . import compare_rules, data_rules, error_rules, growth_rules, model_rules, nonfinite_rules, quantization_rules, range_rules, run_rules, scale_rules, table_rules, update_rules, update_tables, value_rules, whatif_rules
from . import rules as common
from .rules import Case, Step
from .said import TYPES, check_said, check_unruled, number, ruled_texts
from .sentences import SETTING, Bounds, check_text
from .values import check_values
from .words import check_words

RULES = {
    code: rule
    for rules in (compare_rules, data_rules, error_rules, growth_rules, model_rules, quantization_rules, range_rules, run_rules, scale_rules, update_rules, value_rules)
    for code, rule in rules.RULES.items()
}
# By the ids of templates.
SAID = {
    id: rule
    for rules in (common, compare_rules, data_rules, error_rules, growth_rules, model_rules, nonfinite_rules, quantization_rules, range_rules, run_rules, scale_rules, update_rules, value_rules)
    for id, rule in getattr(rules, "SAID", {}).items()
}
SAID |= scale_rules.FLUSHED_ADVICE
FACTS = {"compare": compare_rules.FACTS, "scale": scale_rules.FACTS, "report": run_rules.FACTS, "updates": update_tables.FACTS, "whatif": whatif_rules.FACTS}
TABLES = table_rules.TABLES | update_tables.TABLES | whatif_rules.TABLES
NOTES = table_rules.NOTES + update_tables.NOTES + whatif_rules.NOTES
NOT_FACTS = {
    "report_version",
    "analysis",
    "title",
    "sources",
    "complete",
    "verdict",
    "verdict_text",
    "verdict_sentences",
    "checked",
    "checked_sentences",
    "causes",
    "findings",
    "tables",
    "plots",
}


def same(told, expected, unit="none"):
    """Numbers within 2^-40 of each other, between equal bounds, or equal texts. Of logarithms the difference counts."""
    if unit in ("bits", "exponent") and isinstance(told, float) and expected is not None:
        return abs(told - expected) <= 2.0**-40
    if isinstance(expected, Bounds):
        lower, upper = (told["lower"], told["upper"]) if isinstance(told, dict) else (told, told)
        return told is not None and expected.allow(number(lower), number(upper))
    if isinstance(expected, tuple):
        lower, upper = (told["lower"], told["upper"]) if isinstance(told, dict) else (told, told)
        return same(lower, expected[0]) and same(upper, expected[1])
    told = number(told)
    if (
        isinstance(told, bool)
        or isinstance(expected, (bool, str))
        or told is None
        or expected is None
        or isinstance(told, (str, dict))
    ):
        return told == expected
    if math.isnan(told) or math.isnan(expected):
        return math.isnan(told) and math.isnan(expected)
    if isinstance(told, int) and isinstance(expected, int):
        return told == expected
    return told == expected or abs(told - expected) <= 2.0**-40 * max(abs(told), abs(expected)) or abs(told - expected) < 1e-300


def check_key_of_tensor(case, evidence):
    """That it names a tensor of the trace as the trace has it."""
    key, f = evidence["key"], case.facts_of(evidence)
    tensor = case.tensor_of(evidence)
    if key.get("run", f.run_id) != f.run_id or key.get("rank", 0) != int(f.trace.run("rank")):
        yield f"there is no rank {key.get('rank')} of run {key.get('run')}"
    if "op" in key and tensor is None:
        yield f"the trace has no output {key['slot']} of op {key['op']}"
        return
    if tensor is not None:
        ops, tensors, op = f.tables.ops, f.tables.tensors, f.tensors.op[tensor]
        text = f.trace.text_of
        for name, is_so in (
            ("op_name", text(ops["name"][op])),
            ("module", text(ops["module"][op])),
            ("phase", ops.words("phase")[op]),
            ("role", f.tensors.role[tensor]),
            ("parameter", text(tensors["parameter"][tensor])),
        ):
            if key.get(name, "") != is_so:
                yield f"{name} {key.get(name)!r}, the trace has {is_so!r}"


def check_place(case, rule, evidence, tensor):
    """The first step in which it was so."""
    key = evidence["key"]
    if "step" not in key:
        return
    place = rule.place(case, tensor, evidence) if rule.place else None
    if place is None:
        yield f"not recomputed: step {key['step']} of evidence"
        return
    r = case.f.rows
    expected = (
        {"step": place.step}
        if isinstance(place, Step)
        else {name: int(getattr(r, name)[place]) for name in ("step", "micro_batch", "loss_index")}
    )
    for name, value in expected.items():
        if key.get(name, 0) != value:
            yield f"evidence: {name} {key.get(name)}, recomputed {value}"


def check_evidence(case, rule):
    tensors = [case.tensor_of(evidence) for evidence in case.finding["evidence"]]
    expected = rule.all_of(case) if rule.all_of else None
    if expected is not None:
        missing = [tensor for tensor in tensors if tensor not in set(expected)]
        if missing or len(tensors) != min(5, len(expected)) or len(set(tensors)) != len(tensors):
            yield f"evidence names tensors {tensors}, recomputed {list(expected)}"
            return
    for tensor, evidence in zip(tensors, case.finding["evidence"]):
        yield from check_key_of_tensor(case, evidence)
        yield from check_place(case, rule, evidence, tensor)
        for name, quantity in evidence["values"].items():
            if (
                isinstance(quantity["value"], str)
                and quantity["unit"] == "none"
                and not re.search(r"\d", quantity["value"])
                and name not in rule.values
            ):
                continue
            if name not in rule.values:
                yield f"not recomputed: {name} {quantity['value']!r} of evidence"
                continue
            value = rule.values[name](case, tensor, evidence)
            if not same(quantity["value"], value, quantity["unit"]):
                yield f"{evidence['key'].get('name', 'evidence')}: {name} {quantity['value']!r}, recomputed {value!r}"


USUAL = (("clip_norm", "1"), ("scale_growth_interval", "2000"), ("scale_growth_factor", "2"))


def larger_margin(case):
    """By as much as the advice says, or by 1."""
    said = case.said("advice.margin_larger_by")
    return float(case.f.trace.settings_by_kind["quantization_margin"][1]) + (said["margin"] if said else 1)


def check_changes(case):
    """Numbers of the changes that it advises: in names of types, the usual norm to clip to, a margin, or a constant of the module."""
    trace = case.f.trace
    for change in case.finding["changes"]:
        setting, value = change["setting"], change.get("value", "")
        if setting == "quantization_margin" and value:
            known = float(value) == larger_margin(case)
        elif setting == "scale_cap" and value:
            known = float(value) == scale_rules.largest_without_overflow(case)
        else:
            of_type = setting.startswith("precision") or setting in ("update_math", "accumulation")
            is_factor = value in ("10000", "-10000") and "now" in change
            known = is_factor or not re.search(r"\d", value) or (value in TYPES if of_type else (setting, value) in USUAL)
        if not known:
            yield f"not recomputed: a change of {setting} to {value}"
        if "now" in change:
            ops = trace.tables.ops
            of_module = [text.split() for text, module in zip(ops.texts("attributes"), ops.texts("module")) if module == change["module"]]
            constants = [float(item.partition("=")[2]) for items in of_module for item in items if not item.endswith("=varies")]
            if number(change["now"]) not in constants:
                yield f"no op of {change['module']} has the constant {change['now']}"


def check_finding(case):
    finding = case.finding
    rule = RULES.get(finding["code"])
    if rule is None:
        if re.search(r"\d", finding["title"] + finding["suggestion"]) or finding["evidence"]:
            yield f"not recomputed: no rule for {finding['code']}: {finding['title']} {finding['suggestion']}"
        return
    for sentences in (finding["title_sentences"], finding["suggestion_sentences"]):
        yield from check_said(case, [each for each in sentences if each["id"] in SAID], SAID)
        others = [each for each in sentences if each["id"] not in SAID]
        for each in others:
            yield from check_unruled(case, each, SAID)
        text = " ".join(each["text"] for each in others)
        yield from check_text(text, rule.text, case, {known for each in others for known in ruled_texts(each, SAID)})
        for name in re.findall(SETTING, text):
            if name not in case.f.trace.settings:
                yield f"the run has no setting {name}"
    yield from check_evidence(case, rule)
    yield from check_changes(case)


def first_step(case, rule):
    """In which it was seen in any of its tensors; None where that is of no step."""
    if rule.first:
        return rule.first(case)
    if not rule.place:
        return None
    tensors = rule.all_of(case) if rule.all_of else None
    evidence = case.finding["evidence"][0]
    places = (
        [rule.place(case, i, None) for i in tensors]
        if tensors is not None
        else [rule.place(case, case.tensor_of(evidence), evidence)]
    )
    return min(place.step if isinstance(place, Step) else int(case.f.rows.step[place]) for place in places)


def check_first_step(case, cause):
    step = first_step(case, RULES[cause["code"]])
    if cause["step"] != step:
        yield f"the cause {cause['title']!r} begins in step {cause['step']}, recomputed {step}"


def module_of(f, key):
    """Of the op, or where that is in none, of the forward op that it belongs to, past casts."""
    if key.get("module") or "op" not in key:
        return key.get("module", "")
    ids = {int(number): op for op, number in enumerate(f.tables.ops["id"])}
    op = ids.get(int(f.tables.ops["forward_id"][ids[int(key["op"], 16)]]))
    while op is not None and f.trace.text_of(f.tables.ops["name"][op]) == "cast":
        op = next((producer for number, producer, slot in f.trace.inputs_of(op) if number == 0), None)
    return "" if op is None else f.trace.text_of(f.tables.ops["module"][op])


def tells(title, value):
    """Whether a title has the number, in one of the ways in which titles write one."""
    number = value["value"]
    if value["unit"] == "share":
        number *= 100
    written = {f"{number:.{digits}g}" for digits in (3, 4, 5, 6)} | {str(number)}
    if value["unit"] == "scale":
        written.add(f"2^{math.log2(number):g}")
    if value["unit"] == "share" and 0 < number < 0.01:
        return "<0.01%" in title
    return not written.isdisjoint(re.findall(r"[-\w.^+]*\w", re.sub(r"(?<=\d),(?=\d{3})", "", title)))


def steps_with(f, rows):
    return len(set(f.rows.step[rows].tolist()))


def steps_of_origin(case):
    """In which the tensor that the finding names first held NaN or infinities: of a gradient steps that were taken, if there are any."""
    f, mine = case.f, case.f.rows_of(case.first_tensor)
    return steps_with(f, f.rows.bad & mine) or steps_with(f, (f.rows.became_infinite > 0) & f.rows.skipped & mine & case.scope) or None


# In how many steps a finding was seen, where its title does not tell it.
STEPS = {
    "data.nonfinite": steps_of_origin,
    "data.outlier": lambda case: steps_with(case.f, data_rules.outlier_batches(case)[0]),
    "range.nonfinite": steps_of_origin,
    "range.values_overflow": steps_of_origin,
    "range.gradients_overflow": steps_of_origin,
    "scale.no_step_taken": lambda case: case.f.steps.n,
    "scale.over_scaled": lambda case: int(case.f.steps.skipped.sum()) or None,
}


def check_steps(case, cause):
    if str(cause["steps"]) in re.findall(r"(\d+) (?:steps?|of \d+ steps?)\b", cause["title"]):
        return
    expected = STEPS.get(cause["code"], lambda case: None)(case)
    if cause["steps"] != expected:
        yield f"the cause {cause['title']!r} is of {cause['steps']} steps, recomputed {expected}"


def check_verdict(case, report, whole):
    """Its sentences are the first ones of findings, the report's or those on the whole run, or have a rule; causes are findings. What a
    run is, every report says alike."""
    if report["verdict"] != whole["verdict"]:
        yield f"{report['verdict']}, of the whole run {whole['verdict']}"
    of_findings = [finding["title_sentences"][0] for finding in report["findings"] + whole["findings"]]
    own = [sentence for sentence in report["verdict_sentences"] if sentence not in of_findings]
    if len(own) == len(report["verdict_sentences"]) and report["causes"]:
        yield f"the verdict tells no finding: {report['verdict_text']}"
    yield from check_said(case, own + report["checked_sentences"], SAID)
    for cause in report["causes"]:
        of = [f for f in report["findings"] if f["code"] == cause["code"] and f["title"] == cause["title"]]
        if len(of) != 1 or of[0]["suggestion"] != cause["advice"]:
            yield f"the cause {cause['title']!r} is no finding"
            continue
        key = of[0]["evidence"][0]["key"] if of[0]["evidence"] else {}
        if cause["module"] != module_of(case.f, key) or cause["op"] != key.get("op_name", ""):
            yield f"the cause {cause['title']!r} is of another op than its evidence"
        values = of[0]["evidence"][0]["values"] if of[0]["evidence"] else {}
        told = cause["value"]
        if values and {"value": told["value"], "unit": told["unit"]} != values.get(told["name"]) and not tells(cause["title"], told):
            yield f"the cause {cause['title']!r} has the value {told}, its evidence {values}"
        yield from check_steps(Case(case.f, report, of[0], case.other), cause)
        for code in set(cause["consequences"]) - {finding["code"] for finding in report["findings"]}:
            yield f"what came of the cause {cause['title']!r}, {code}, is no finding"
        yield from check_first_step(Case(case.f, report, of[0], case.other), cause)


def check_cells(told, expected, units, where):
    for name, value in told.items():
        if name not in expected:
            yield f"not recomputed: column {name} of {where}"
        elif not same(value, expected[name], units.get(name, "none")):
            yield f"{where}: {name} {value!r}, recomputed {expected[name]!r}"


def check_table(case, table):
    analysis, name = case.report["analysis"], table["name"]
    units = {column["name"]: column["unit"] for column in table["columns"]}
    if analysis == "compare":
        cells = {"summary": compare_rules.summary, "tensors": compare_rules.tensor_cells}[name]
        rows = len(compare_rules.matched(case)) if name == "tensors" else len(table["rows"])
    else:
        columns, count = TABLES[analysis, name]
        rows = count(case)

        def cells(_, row):
            tensor = case.tensor_of(row)
            names = {"tensor": row["values"].get("tensor")} if tensor is not None else {}
            return {column: of(case, tensor, row) for column, of in columns.items()} | names

    yield from check_text(table["note"], NOTES, case)
    if len(table["rows"]) + table["rows_left_out"] != rows:
        yield f"table {name}: {len(table['rows'])} rows and {table['rows_left_out']} more, recomputed {rows}"
    for row in table["rows"]:
        expected = cells(case, row)
        where = f"table {name}, {row['values'].get('tensor') or row['values'].get('metric') or row['key'].get('step')}"
        if expected is None:
            yield f"not recomputed: {where}"
            continue
        yield from check_key_of_tensor(case, row)
        yield from check_cells(row["values"], expected, units, where)


def series_of(case, plot):
    """How many there are, shown or left out."""
    if plot["kind"] == "histogram":
        return table_rules.histograms(case, plot)
    if (case.report["analysis"], plot["name"]) == ("updates", "lost"):
        return update_tables.losing(case)
    if plot["name"] == "differences":
        return len(compare_rules.steps_of(case).differing())
    return len(plot["series"])


def check_plots(case):
    for plot in case.report["plots"]:
        if "series" in plot and len(plot["series"]) + plot["series_left_out"] != series_of(case, plot):
            yield f"plot {plot['name']}: {len(plot['series'])} series and {plot['series_left_out']} more, recomputed {series_of(case, plot)}"
        if case.report["analysis"] == "whatif":
            yield from {"lost": whatif_rules.check_lost, "scaling": whatif_rules.check_scaling}[plot["name"]](case, plot)
            continue
        if plot["name"] == "differences":
            yield from compare_rules.check_differences(case, plot)
        if plot["name"] == "lost":
            yield from update_tables.check_end(case, plot)
        if plot["kind"] == "histogram":
            yield from table_rules.check_limits(case, plot)
        for series in plot["series"]:
            yield from check_key_of_tensor(case, series)
            if plot["kind"] == "histogram":
                yield from table_rules.check_histogram(case, plot, series)
            elif plot["name"] == "lost":
                yield from update_tables.check_lost(case, series)
            elif plot["name"] == "differences":
                pass  # above, all together
            elif series["name"] == "loss scale":
                yield from table_rules.check_scale_history(case, series)
            elif series["name"].startswith("largest"):
                yield from table_rules.check_largest_of_steps(case, series)
            elif series["name"].startswith("smallest"):
                yield from table_rules.check_smallest_of_steps(case, series)
            else:
                yield f"not recomputed: plot of {series['name']}"


def guarded(what, found):
    """What a report names may not be there, so that a rule finds nothing to compute from."""
    try:
        yield from found
    except (ArithmeticError, AttributeError, LookupError, StopIteration, RuntimeError, TypeError, ValueError) as error:
        yield f"{what}: not recomputed, for the trace lacks what it names: {error!r}"


def mistakes(facts, report, whole):
    """What is wrong with the numbers of a report of one trace, or of two. `whole`: that of `ulpscope report`, of two the same one."""

    def without_paths(text):
        for each in facts:
            text = text.replace(each.path, "TRACE")
        return json.loads(text)

    report, whole = without_paths(json.dumps(report)), without_paths(json.dumps(whole))
    other = facts[1] if len(facts) > 1 else None
    for finding in report["findings"]:
        for mistake in guarded(finding["title"], check_finding(Case(facts[0], report, finding, other))):
            yield f"{finding['code']}: {mistake}"
    yield from guarded("sentences", check_values(facts, report))
    case = Case(facts[0], report, {"title": "", "title_sentences": [], "suggestion_sentences": []}, other)
    yield from check_words(report)
    if "verdict" in report:
        yield from guarded("verdict", check_verdict(case, report, whole))
    for table in report["tables"]:
        yield from guarded(table["name"], check_table(case, table))
    yield from guarded("plots", check_plots(case))
    of_analysis = FACTS.get(report["analysis"], {})
    for name in sorted(report.keys() - NOT_FACTS):
        if name not in of_analysis:
            yield f"not recomputed: fact {name} {report[name]!r}"
        elif not same(report[name], of_analysis[name](case)):
            yield f"{name} {report[name]!r}, recomputed {of_analysis[name](case)!r}"
