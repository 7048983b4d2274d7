"""Finds the numbers of a text and holds them to what was recomputed.

A rule is a pattern with named groups and a function that gives what each group has to be. What of a text no group covers, and no
constant explains, may hold no digit.
"""

import dataclasses
import math
import re

SETTING = r"\b(?:arithmetic|autocast|clipping|fp8|loss|optimizer|optimizers\[\d+\]|scaler|schedule)\.[a-z0-9_]+"

# What a digit in a text stands for where it is no measured number, each with its reason.
CONSTANTS = [
    (r"\b(?:FP64|FP32|FP16|BF16|FP8|fp32|fp16|bf16|E4M3|E5M2|e4m3|e5m2)\b", "the name of a type"),
    (SETTING, "the name of a setting, which the run has to have"),
    (r"\b(?:beta[12]|g\^2|exp_avg / 0|0 / 0|divides by 0)\b", "Adam's formula, and divisions by zero"),
    (r"\(1 - beta2\)", "Adam's formula"),
    (r"\b16 bits\b", "the size of FP16 and BF16"),
    (r"\(from 0\)", "how rows of files are counted"),
    (r"takes the logarithm of it and of 1 minus it, and below 0 a logarithm is NaN", "the definition of the function"),
    (
        r"Smallest: at which at most 1% of the nonzero elements are flushed to zero, or in 90% of the rows at most 1% of the norm",
        "docs/numerics.md, fitting scales: the limit, and felt",
    ),
    (r"\(--limit 0 shows them\)", "the option that leaves no row out"),
    (r"log2 of the largest", "the name of a function"),
]


@dataclasses.dataclass
class Shown:
    """A recomputed number and how texts show it."""

    value: float
    text_of: object

    def fits(self, text):
        # A number in the middle between two texts may be shown as either.
        return text in {self.text_of(self.value * (1 + d)) for d in (0, 1e-12, -1e-12)} or text == self.text_of(self.value)

    def __str__(self):
        return f"{self.text_of(self.value)} ({self.value!r})"


def general(value, digits):
    return Shown(value, lambda x: f"{x:.{digits}g}")


def share_text(share):
    percent = 100 * share
    if 0 < percent < 0.01:
        return "<0.01%"
    if 99.95 <= percent < 100:
        return ">99.9%"
    return f"{percent:.3g}%"


def share(value):
    return Shown(value, share_text)


def scale_text(value):
    if value > 0 and math.frexp(value)[0] == 0.5 and value != 1:
        return f"2^{math.frexp(value)[1] - 1}"
    return f"{value:,.0f}" if value == math.floor(value) and abs(value) < 1e9 else f"{value:.4g}"


def scale(value):
    return Shown(value, scale_text)


def power(exponent):
    return scale(math.ldexp(1.0, exponent))


def bounds_text(lower, upper):
    """Of a scale between two bounds, with 0 and infinity for none."""
    if upper == math.inf:
        return f"at least {scale_text(lower)}"
    if lower == 0:
        return f"at most {scale_text(upper)}"
    return scale_text(lower) if lower == upper else f"{scale_text(lower)} to {scale_text(upper)}"


BIN_0 = 2.0**23  # the subnormals of FP32, which one bin of a histogram holds, are this far apart


@dataclasses.dataclass
class Bounds:
    """Of a scale, with 0 and infinity for none. Loose: others that hold these, and are no farther away than bin 0 is wide, are right as
    well."""

    lower: float
    upper: float
    loose: bool = False

    def allow(self, lower, upper):
        is_wider = lower <= self.lower <= lower * BIN_0 and upper / BIN_0 <= self.upper <= upper
        return (lower, upper) == (self.lower, self.upper) or (self.loose and is_wider)

    def fits(self, text):
        told = [math.ldexp(1, int(k)) if k else float(number) for k, number in re.findall(r"2\^(-?\d+)|(\b[\d.]+)", text)]
        if text.startswith("at least ") and len(told) == 1:
            return self.allow(told[0], math.inf)
        if text.startswith("at most ") and len(told) == 1:
            return self.allow(0, told[0])
        return len(told) in (1, 2) and text == bounds_text(told[0], told[-1]) and self.allow(told[0], told[-1])

    def __str__(self):
        return bounds_text(self.lower, self.upper)


@dataclasses.dataclass
class AtLeast:
    """A lower bound of a scale, known itself."""

    lower: float
    loose: bool = False

    def fits(self, text):
        told = re.fullmatch(r"2\^(-?\d+)|1", text)
        value = math.ldexp(1, int(told[1] or 0)) if told else math.nan
        return value == self.lower or (self.loose and value <= self.lower <= value * BIN_0)

    def __str__(self):
        return scale_text(self.lower)


def fits(text, expected):
    if isinstance(expected, (Shown, Bounds, AtLeast)):
        return expected.fits(text)
    if isinstance(expected, str):
        return text == expected
    if text in ("one", "the only"):
        return expected == 1
    return text.replace(",", "") == str(int(expected))


class Claim(dict):
    """What a rule says of its groups, and beside that what has to be true of the sentence."""

    def __init__(self, groups=(), **holds):
        super().__init__(groups)
        self.holds = holds


def check_text(text, rules, context, known=()):
    """Yields what is wrong with a text. `rules`: pairs of a pattern and a function of the context and the match. `known`: parts of it that
    are checked elsewhere."""
    covered = [False] * len(text)

    def cover(begin, end):
        covered[begin:end] = [True] * (end - begin)

    for pattern, recompute in rules:
        for match in re.finditer(pattern, text):
            claim = recompute(context, match)
            groups = {name: found for name, found in match.groupdict().items() if found is not None}
            for name, found in groups.items():
                cover(*match.span(name))
                if name not in claim:
                    yield f"{match[0]!r}: the rule does not recompute {name}"
                elif claim[name] is not None and not fits(found, claim[name]):
                    yield f"{match[0]!r}: {name} is {found}, recomputed {claim[name]}"
            for what, is_true in getattr(claim, "holds", {}).items():
                if not is_true:
                    yield f"{match[0]!r}: {what.replace('_', ' ')} is not so"
    for pattern in [*(pattern for pattern, _ in CONSTANTS), *map(re.escape, known)]:
        for match in re.finditer(pattern, text):
            cover(*match.span())
    left = "".join(" " if hidden else letter for letter, hidden in zip(text, covered))
    for match in re.finditer(r"\S*\d\S*", left):
        yield f"not recomputed: {match[0]!r} in {text!r}"
