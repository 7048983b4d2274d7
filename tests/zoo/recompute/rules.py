"""What a rule is, and what it is given."""

import dataclasses
import functools
import math
import re
import typing

import numpy

from .facts import Facts
from .said import Said, phrases
from .sentences import Claim, general


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
        told = self.said("finding.judged_before_break")
        return told["step"] if told else math.inf

    def said(self, id):
        """The sentence or phrase of that template; None where it stands neither in the title nor in the advice."""
        sentences = self.finding["title_sentences"] + self.finding["suggestion_sentences"]
        return next((Said(phrase) for each in sentences for phrase in phrases(each) if phrase["id"] == id), None)

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


# What any finding may say, by the ids of templates.
SAID = {
    "finding.judged_before_break": lambda case, said: {"step": case.f.steps.broken_from},
    "verdict.no_problem": lambda case, said: Claim({"steps": case.f.steps.n}, it_says_what_was_skipped=bool(said["skipped"]) == bool(case.f.steps.skipped.any())),
    "verdict.skipped": lambda case, said: {"skipped": int(case.f.steps.skipped.sum())},
}

# What any finding may say.
COMMON = [
    (r"[( ](?P<name>[a-z_0-9]+(?:\[\d+\])?(?:\.\w+)?), now (?P<value>\"[^\"]*\"|[^,()]+)", as_it_is),
    (
        r", which had risen from (?P<first>\S+) in step (?P<begin>\d+) to (?P<rate>\S+) in step (?P<step>\d+)",
        lambda case, match: rate_rose(case, match),
    ),
    (
        r"The learning rate was below a hundredth of (?P<most>\S+), which it was in step (?P<step>\d+), in (?P<small>\d+) of "
        r"(?P<all>\d+) steps",
        lambda case, match: rate_fell(case, match),
    ),
    (
        r"The learning rate had risen to (?P<rate>\S+) by step (?P<step>\d+), and goes up to (?P<full>\S+) \(",
        lambda case, match: rate_is_rising(case, match),
    ),
    (
        r"Weight decay \(.*?\) times the learning rate is up to (?P<taken>[^:]+): lower it, for it draws weights to (?P<zero>0) ",
        lambda case, match: Claim(
            {
                "taken": general(float(setting_of(case, "weight_decay")[1]) * float(numpy.nanmax(judged_rates(case)[1])), 3),
                "zero": 0,
            }
        ),
    ),
]


def setting_of(case, kind):
    return case.f.trace.settings_by_kind[kind]


def judged_rates(case):
    """The steps before the run broke, with their learning rates."""
    s = case.f.steps
    asked = ~s.broken & numpy.isfinite(s.learning_rate)
    return s.step[asked], s.learning_rate[asked]


def rate_rose(case, match):
    steps, rates = judged_rates(case)
    at = int(numpy.flatnonzero(steps == int(match["step"]))[0])
    return Claim(
        {"first": general(rates[0], 4), "begin": steps[0], "rate": general(rates[at], 4), "step": steps[at]},
        it_rose=rates[at] > 2 * rates[0],
    )


def rate_fell(case, match):
    steps, rates = judged_rates(case)
    most = int(numpy.argmax(rates))
    small = int((rates < 0.01 * rates[most]).sum())
    return Claim(
        {"most": general(rates[most], 4), "step": steps[most], "small": small, "all": len(rates)},
        it_was_most_of_the_steps=2 * small > len(rates),
    )


def rate_is_rising(case, match):
    steps, rates = judged_rates(case)
    full = float(setting_of(case, "learning_rate")[1])
    return Claim(
        {"rate": general(rates[-1], 4), "step": steps[-1], "full": general(full, 4)},
        it_never_came_near=rates[-1] < 0.01 * full and rates[-1] == rates.max(),
    )


def log2(x):
    return math.log2(x) if x > 0 else None


def setting_now(kind):
    def recompute(case, match):
        name, value = case.f.trace.settings_by_kind[kind]
        return {"name": name, "value": value}

    return recompute
