"""The values of a report's sentences, held to what was recomputed.

A rule for a template, by its id, is a function of the case and of the values of one sentence, which gives what each of its numbers has to be.
A number that no rule gives is a mistake; so is a rule that gives one which the sentence does not have.
"""

import math
import re

from .sentences import AtLeast, Bounds, Claim, Shown

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def number(value):
    """A number of JSON, which has no NaN and no infinities."""
    return SPECIAL.get(value, value) if isinstance(value, str) else value


class Said:
    """A sentence or a phrase: said["steps"] is the number, said["module"] the name, said["where"] the phrase or None."""

    def __init__(self, sentence):
        self.id, self.values = sentence["id"], sentence["values"]

    def __getitem__(self, name):
        return plain(self.values[name])

    def get(self, name):
        return plain(self.values.get(name))


def plain(value):
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict) or "setting" in value:
        return value
    if "values" in value:
        return Said(value)
    if "unit" in value:
        return number(value["value"])
    return next(iter(value.values()))


def phrases(value):
    """The sentence itself, and all phrases in it."""
    if isinstance(value, list):
        for each in value:
            yield from phrases(each)
    elif isinstance(value, dict) and "values" in value:
        yield value
        for each in value["values"].values():
            yield from phrases(each)


def numbers(name, value):
    """(name, number) of those that a sentence holds itself: in its values, and in lists of them."""
    if isinstance(value, list):
        for each in value:
            yield from numbers(name, each)
    elif isinstance(value, dict) and "unit" in value and "values" not in value:
        yield name, value["value"]


def settings(value):
    """All settings that a value names, and in the values of phrases."""
    if isinstance(value, list):
        for each in value:
            yield from settings(each)
    elif isinstance(value, dict) and "setting" in value:
        yield value
    elif isinstance(value, dict) and "values" in value:
        yield from settings(list(value["values"].values()))


def value_of(setting):
    """The one that it is said to have, or None."""
    return setting.get("now", setting.get("is"))


def agrees(told, expected):
    """Whether a value is the one that was recomputed, to within 2^-40 of it; of bounds, whether they allow it."""
    if expected is None:
        return True
    if isinstance(expected, Bounds):
        lower, upper = (told["lower"], told["upper"]) if isinstance(told, dict) else (told, told)
        return expected.allow(number(lower), number(upper))
    told = number(told)
    if isinstance(expected, AtLeast):
        lower = number(told["lower"]) if isinstance(told, dict) else told
        return lower == expected.lower or (expected.loose and lower <= expected.lower <= lower * 2.0**23)
    value = float(expected.value if isinstance(expected, Shown) else expected)
    if isinstance(told, dict):
        return False
    if math.isnan(value) or math.isnan(told):
        return math.isnan(value) and math.isnan(told)
    return told == value or abs(told - value) <= 2.0**-40 * max(abs(told), abs(value))


def check_phrase(case, phrase, rules):
    rule = rules.get(phrase["id"])
    expected = rule(case, Said(phrase)) if rule else {}
    of = {name for name, value in phrase["values"].items() for _ in numbers(name, value)}
    for name, value in phrase["values"].items():
        told_here = [told for _, told in numbers(name, value)]
        wanted = expected.get(name)
        for i, told in enumerate(told_here):
            of_list = wanted[i] if isinstance(wanted, list) and len(wanted) == len(told_here) else wanted
            if name not in expected:
                yield f"{phrase['id']}: not recomputed: {name} {told!r} in {phrase['text']!r}"
            elif isinstance(of_list, list) or not isinstance(of_list, str) and not agrees(told, of_list):
                yield f"{phrase['id']}: {name} is {told!r}, recomputed {of_list}"
        if isinstance(expected.get(name), str) and plain(value) != expected[name]:
            yield f"{phrase['id']}: {name} is {plain(value)!r}, recomputed {expected[name]!r}"
    for name in expected.keys() - of:
        if not isinstance(expected[name], str) and expected[name] is not None:
            yield f"{phrase['id']}: the sentence has no number {name}"
    if isinstance(expected, Claim):
        yield from (f"{phrase['id']}: {what.replace('_', ' ')} is not so: {phrase['text']!r}" for what, is_true in expected.holds.items() if not is_true)


TYPES = ('"fp32"', '"bf16"')


def check_settings(case, sentence):
    """Whether a setting has the value that it is said to have. One that it is to have is a type, or that of a change that is advised."""
    changes = [change.get("value") for change in case.finding.get("changes", [])]
    for setting in settings(sentence):
        name, now, to = setting["setting"], value_of(setting), setting.get("to", "")
        if now is not None and case.f.setting(name) != now:
            yield f"{sentence['id']}: {name} is said to be {now}, it is {case.f.setting(name)}"
        if re.search(r"\d", to) and to not in (*TYPES, *changes):
            yield f"{sentence['id']}: not recomputed: {name} = {to}"


def names(kind, value):
    """All names of a kind that a value holds: in lists and in phrases too."""
    if isinstance(value, list):
        for each in value:
            yield from names(kind, each)
    elif isinstance(value, dict) and "values" in value:
        yield from names(kind, list(value["values"].values()))
    elif isinstance(value, dict) and kind in value:
        yield value[kind]


def check_files(sentence):
    """Whether the traces that it names are those of the report. `mistakes` calls each of them TRACE."""
    for file in names("file", sentence["values"].get("trace")):
        if file != "TRACE":
            yield f"{sentence['id']}: the trace {file} is not the report's"


def check_named(case, sentence):
    yield from check_settings(case, sentence)
    yield from check_files(sentence)


def check_said(case, sentences, rules):
    """Yields what is wrong with the numbers of sentences. `rules`: by id, functions of a case and what is said."""
    for sentence in sentences:
        yield from check_named(case, sentence)
        for phrase in phrases(sentence):
            yield from check_phrase(case, phrase, rules)


def check_unruled(case, sentence, rules):
    """The same of a sentence that has no rule, though phrases in it have one."""
    yield from check_named(case, sentence)
    for phrase in phrases(sentence):
        if phrase["id"] in rules:
            yield from check_phrase(case, phrase, rules)


def ruled_texts(sentence, rules):
    """What of its text is checked so: phrases that have a rule, and values of settings."""
    yield from (phrase["text"] for phrase in phrases(sentence) if phrase["id"] in rules)
    yield from (value_of(setting) for setting in settings(sentence) if value_of(setting) is not None)
