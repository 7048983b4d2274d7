"""What a rule is, and what it is given."""

import dataclasses
import functools
import math
import re
import typing

from .facts import Facts
from .sentences import Claim


class Case:
    """A finding of a report, with the traces that it is about."""

    def __init__(self, facts: Facts, report: dict, finding: dict, other: Facts | None = None):
        self.f, self.report, self.finding, self.fitting, self.other = facts, report, finding, facts.fitting, other
        self.made = {}

    def once(self, key, make):
        """What `make` gives, made once."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def facts_of(self, evidence):
        """Those of the trace that it is from."""
        run = evidence["key"].get("run")
        return self.other if self.other and run == self.other.run_id else self.f

    def tensor_of(self, evidence):
        """The tensor that a piece of evidence names, by the id of its op and the slot; None where it names none."""
        key = evidence["key"]
        return self.facts_of(evidence).trace.tensor_of_output.get((int(key["op"], 16), key["slot"])) if "op" in key else None

    @functools.cached_property
    def before(self):
        """The step that its sentences stop before, where they say so."""
        told = re.search(r"before step (\d+)", self.finding["title"])
        return int(told[1]) if told else math.inf

    @functools.cached_property
    def scope(self):
        """The rows that it is about."""
        return self.f.rows.known & (self.f.rows.step < self.before)

    @property
    def first_tensor(self):
        return self.tensor_of(self.finding["evidence"][0])

    @property
    def first_name(self):
        return self.finding["evidence"][0]["key"]["name"]


@dataclasses.dataclass
class Rule:
    text: list = dataclasses.field(default_factory=list)  # (pattern, function of case and match)
    values: dict = dataclasses.field(default_factory=dict)  # of evidence: by name a function of case, tensor and evidence
    place: typing.Callable | None = None  # of evidence: function of case and tensor that gives the row of stats, or Step
    all_of: typing.Callable | None = None  # function of case that gives all tensors that it is about, of which five are named
    first: typing.Callable | None = None  # function of case that gives its first step, where it is not that of its tensors' rows


@dataclasses.dataclass
class Step:
    step: int


def as_it_is(case, match):
    name = match["name"]
    return Claim({"name": name, "value": case.f.setting(name)}, the_run_has_this_setting=case.f.setting(name) is not None)


# What any finding may say.
COMMON = [
    (
        r"Judged by the steps before step (?P<step>\d+), where the run broke\.$",
        lambda case, match: {"step": case.f.steps.broken_from},
    ),
    (r"[( ](?P<name>[a-z_0-9]+(?:\.\w+)?), now (?P<value>\"[^\"]*\"|[^,()]+)", as_it_is),
]


def log2(x):
    return math.log2(x) if x > 0 else None


def setting_now(kind):
    def recompute(case, match):
        name, value = case.f.trace.settings_by_kind[kind]
        return {"name": name, "value": value}

    return recompute
