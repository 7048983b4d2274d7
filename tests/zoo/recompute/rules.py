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


def setting_of(case, kind):
    return case.f.trace.settings_by_kind[kind]


def judged_rates(case):
    """The steps before the run broke, with their learning rates."""
    s = case.f.steps
    asked = ~s.broken & numpy.isfinite(s.learning_rate)
    return s.step[asked], s.learning_rate[asked]


def rate_rose(case, said):
    steps, rates = judged_rates(case)
    at = int(numpy.flatnonzero(steps == said["largest_step"])[0])
    return Claim(
        {"first": rates[0], "first_step": steps[0], "largest": rates[at], "largest_step": steps[at]},
        it_rose=rates[at] > 2 * rates[0],
    )


def rate_fell(case, said):
    steps, rates = judged_rates(case)
    most = int(numpy.argmax(rates))
    small = int((rates < 0.01 * rates[most]).sum())
    return Claim(
        {"largest": rates[most], "step": steps[most], "small": small, "steps": len(rates)},
        it_was_most_of_the_steps=2 * small > len(rates),
    )


def rate_is_rising(case, said):
    steps, rates = judged_rates(case)
    full = float(setting_of(case, "learning_rate")[1])
    return Claim(
        {"rate": rates[-1], "step": steps[-1], "full": full},
        it_never_came_near=rates[-1] < 0.01 * full and rates[-1] == rates.max(),
    )


def decay_times_rate(case, said):
    """By what is set, whatever a schedule makes of it."""
    return {"product": float(setting_of(case, "weight_decay")[1]) * float(setting_of(case, "learning_rate")[1])}


def decay_times_largest_rate(case, said):
    return {"product": float(setting_of(case, "weight_decay")[1]) * float(numpy.nanmax(judged_rates(case)[1]))}


def cast_for(case, said):
    f, op = case.f, case.f.tensors.op[case.first_tensor]
    return Claim({"module": f.trace.text_of(f.tables.ops["module"][op])}, it_is_a_cast=f.tables.ops.words("kind")[op] == "cast")


def log2(x):
    return math.log2(x) if x > 0 else None


def setting_now(kind):
    def recompute(case, match):
        name, value = case.f.trace.settings_by_kind[kind]
        return {"name": name, "value": value}

    return recompute


def left_out(case, prefix):
    """The numbers of metrics whose names begin so, in which a producer says what it left out."""
    f, events = case.f, case.f.tables.events
    rows = [row for row in f.events("metric") if f.trace.text_of(events["text"][row]).startswith(prefix)]
    return int(sum(events["value"][row] for row in rows))


def not_read(case, said):
    left = left_out(case, "recording.not_read.")
    return {"not_read": left, "calls": left + left_out(case, "recording.calls") - left_out(case, "recording.calls_of_other_threads")}


def no_problem(case, said, **values):
    """What a verdict of OK says of the steps: those that were skipped, and losses that were not finite, are told."""
    steps = case.f.steps
    return Claim(
        {"steps": steps.n, **values},
        it_says_what_was_skipped=bool(said["skipped"]) == bool(steps.skipped.any()),
        it_says_what_was_nonfinite=bool(said["losses"]) == bool(said["lasting"]) == bool(steps.nonfinite.any()),
    )


# What any finding may say, by the ids of templates.
SAID = {
    "checked.calls_not_read": not_read,
    "checked.calls_refused": lambda case, said: {"refused": left_out(case, "recording.refused")},
    "checked.compiled": lambda case, said: {"modules": left_out(case, "recording.compiled_modules")},
    "checked.other_threads": lambda case, said: {"calls": left_out(case, "recording.calls_of_other_threads")},
    "checked.paused": lambda case, said: {"blocks": left_out(case, "recording.paused_blocks")},
    "checked.filtered": lambda case, said: {},  # patterns, as they were given
    "finding.judged_before_break": lambda case, said: {"step": case.f.steps.broken_from},
    "verdict.no_problem": no_problem,
    "verdict.no_problem_in_recorded": lambda case, said: no_problem(case, said, recorded=int((case.f.tables.steps["level"] != 0).sum())),
    "verdict.no_problem_of_results": lambda case, said: Claim(
        {"steps": case.f.steps.n}, no_step_has_tensors=not (case.f.tables.steps["level"] != 0).any()
    ),
    "verdict.losses_were": lambda case, said: {
        "losses": int(case.f.steps.nonfinite.sum()),
        "step": int(case.f.steps.step[case.f.steps.nonfinite][0]),
    },
    "verdict.skipped": lambda case, said: {"skipped": int(case.f.steps.skipped.sum())},
    "place.module_of_cast": cast_for,
    "advice.momentum_of_one": lambda case, said: Claim(it_is_one_or_more=float(setting_of(case, "momentum")[1]) >= 1),
    "advice.lower_decay": decay_times_rate,
    "advice.lower_risen_rate": rate_rose,
    "advice.rate_was_small": rate_fell,
    "advice.rate_rises_slowly": rate_is_rising,
    "advice.decay_draws_to_zero": decay_times_largest_rate,
}
