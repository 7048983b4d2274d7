"""The sentences of a report as data: their templates and values make its texts, and what they call names is a name of the trace, and
no other text. Texts are held to the trace elsewhere, and so values are, too."""

import functools
import json
import math
import pathlib
import re
import sys

try:
    import jsonschema
except ImportError:
    jsonschema = None
    print("jsonschema cannot be imported: reports are not held to docs/report.schema.json", file=sys.stderr)

from .sentences import bounds_text, scale_text, share_text

ROOT = pathlib.Path(__file__).parents[3]
SCHEMA = ROOT / "docs/report.schema.json"
FORMATS = ("fp64", "fp32", "fp16", "bf16", "tf32", "fp8", "e4m3", "e5m2")
BATCH = ("inputs", "targets")
PHASES = {"data", "forward", "loss", "backward", "scaling", "optimizer", "evaluation", "recompute"}


@functools.cache
def validator():
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.Draft202012Validator(schema)


def check_schema(report):
    if jsonschema is not None:
        for error in validator().iter_errors(report):
            yield f"docs/report.schema.json: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


@functools.cache
def templates():
    """The words of each template, by its id, as the sources have them."""
    found = {}
    for folder in ("analyzers", "studies"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            for id, words in re.findall(r'\bTemplate \w+\{\s*"([^"]+)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\}', path.read_text()):
                assert id not in found, f"two templates are called {id}"
                found[id] = json.loads('"' + "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', words)) + '"')
    return found


def number_text(value, unit):
    """Without a form, as its unit has it."""
    if isinstance(value, dict):
        return bounds_text(value["lower"], math.inf if value["upper"] == "Infinity" else value["upper"])
    if unit == "share":
        return share_text(value)
    if unit in ("scale", "power_of_two"):
        return scale_text(value)
    if unit == "ratio":
        return f"{number_text(value, 'none')}x" if value == math.floor(value) and abs(value) < 1e9 else f"{grouped(f'{value:.3g}')}x"
    if unit == "exponent":
        return f"2^{number_text(value, 'none')}"
    if unit == "bits":
        return "0.0" if f"{value:.1f}" == "-0.0" else f"{value:.1f}"
    if isinstance(value, str):
        return value.replace("Infinity", "Inf")
    if isinstance(value, int) and unit == "none":
        return str(value)
    return f"{value:,.0f}" if value == math.floor(value) and abs(value) < 1e9 else grouped(f"{value:.4g}")


def grouped(text):
    """With a comma between each three digits of the whole number that a text begins with."""
    if "e+0" in text:
        return f"{float(text):,.0f}"
    whole = re.match(r"-?\d+", text)
    return f"{int(whole[0]):,}{text[whole.end():]}" if whole and int(whole[0]) else text


def number_in_form(value, form):
    value = float(value.replace("Infinity", "inf")) if isinstance(value, str) else value
    word, _, rest = form.partition(" ")
    if word == "count":
        return f"{value:,} {rest}{'' if value == 1 else 's'}"
    if word == "either":
        return rest.split("|")[value != 1]
    if word == "special" or not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    if form.endswith("%"):
        return f"{100 * value:{form[:-1] or 'g'}}%"
    return grouped(f"{float(value):{form}}")


def value_text(value, form):
    if value is None:
        return ""
    if isinstance(value, list):
        words = [value_text(each, "") for each in value]
        if form == "brackets":
            return f" ({', '.join(words)})"
        last = ", " if form == "commas" else f" {form or 'and'} "
        return words[0] if len(words) == 1 else ", ".join(words[:-1]) + last + words[-1]
    if form == "brackets":
        return f" ({value_text(value, '')})"
    if "values" in value:
        return sentence_text(value)
    if "setting" in value:
        told = "".join(f" = {value[how]}" for how in ("is", "to") if how in value)
        return value["setting"] + told + (f", now {value['now']}" if "now" in value else "")
    if "unit" in value:
        return number_in_form(value["value"], form) if form else number_text(value["value"], value["unit"])
    return next(iter(value.values()))


def sentence_text(sentence):
    def place(match):
        return value_text(sentence["values"][match[1]], match[2] or "")

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", place, templates()[sentence["id"]])


def phrases_in(value):
    """The phrases of a sentence or a value, and theirs."""
    if isinstance(value, list):
        for each in value:
            yield from phrases_in(each)
    elif isinstance(value, dict) and "values" in value:
        yield value
        for each in value["values"].values():
            yield from phrases_in(each)


def names_in(value):
    """(kind, name) of all names in a value, and in those of a phrase or a list; settings among them."""
    if isinstance(value, list):
        for each in value:
            yield from names_in(each)
    elif isinstance(value, dict) and "values" in value:
        for each in value["values"].values():
            yield from names_in(each)
    elif isinstance(value, dict) and "setting" in value:
        yield "setting", value["setting"]
    elif isinstance(value, dict) and "unit" not in value:
        yield from value.items()


class Names:
    """What is called how in the traces that a report is about."""

    def __init__(self, facts):
        ops, tensors = ([getattr(f.tables, table) for f in facts] for table in ("ops", "tensors"))
        modules = set().union(*(table.texts("module") for table in ops))
        self.modules = modules | {module[:end] for module in modules for end in range(len(module)) if module[end] == "."}
        self.ops = set().union(*(table.texts("name") for table in ops))
        self.parameters = set().union(*(table.texts("parameter") for table in tensors)) - {""}
        self.settings = set().union(*(f.trace.settings for f in facts))

    def has(self, kind, name):
        return {
            "op": lambda: name in self.ops,
            # A pattern of autocast's stands for a group of them.
            "module": lambda: name.rstrip("*").rstrip(".") in self.modules,
            "parameter": lambda: name in self.parameters,
            "phase": lambda: name in PHASES,
            "format": lambda: name.lower().startswith(FORMATS),
            # A table of modules is a setting as well as each of its lines.
            "setting": lambda: name.split('."')[0] in self.settings,
            # Words for a tensor are made of its parameter, of its op and its module, or say that it is of the batch.
            "tensor": lambda: name.startswith(BATCH) or any(part in name for part in self.parameters | self.ops),
        }.get(kind, lambda: name != "")()


def check_sentences(names, text, sentences):
    joined = " ".join(sentence["text"] for sentence in sentences)
    if joined != text:
        yield f"{text!r} is not what its sentences say: {joined!r}"
    for sentence in sentences:
        for phrase in phrases_in(sentence):
            if phrase["id"] not in templates():
                yield f"{phrase['id']} is no template"
            elif sentence_text(phrase) != phrase["text"]:
                yield f"{phrase['id']}: {phrase['text']!r}, and by its values {sentence_text(phrase)!r}"
        for kind, name in names_in(sentence):
            if not names.has(kind, name):
                yield f"{sentence['id']}: {name!r} is no {kind} of the trace"


def check_values(facts, report):
    yield from check_schema(report)
    names = Names(facts)
    for finding in report["findings"]:
        for what in ("title", "suggestion"):
            for mistake in check_sentences(names, finding[what], finding[f"{what}_sentences"]):
                yield f"{finding['code']}: {mistake}"
    if "verdict" in report:
        yield from check_sentences(names, report["verdict_text"], report["verdict_sentences"])
