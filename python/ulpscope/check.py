"""Checks of checkpoints: what a file of weights, and of an optimizer's and a scaler's state, says without a rerun."""

import argparse
import html
import json
import math
import os
import sys
import textwrap
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Union

from ._library import Error
from ._report import named

_WIDTH = 120
_CLEAN, _FINDINGS, _USAGE, _UNREADABLE, _FAILED = 0, 1, 2, 3, 4  # as the program has them


class Check:
    """What a checkpoint says: .verdict, .findings, .facts and .text."""

    def __init__(self, path: str, findings: List[Dict[str, Any]], facts: Dict[str, Any]) -> None:
        self.path = path
        self.findings = findings
        self.facts = facts

    @property
    def verdict(self) -> str:
        """ok, warning or broken: by the severest finding, none or info, warning, error."""
        severities = {finding["severity"] for finding in self.findings}
        return "broken" if "error" in severities else "warning" if "warning" in severities else "ok"

    @property
    def text(self) -> str:
        """The check as the command prints it."""
        return "\n".join(_lines(self)) + "\n"

    def to_json(self) -> str:
        """One object: path, verdict, findings, and the facts; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity"."""
        whole = {"path": self.path, "verdict": self.verdict, "findings": self.findings, **self.facts}
        return json.dumps(named(whole), indent=2)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ulpscope check of {self.path}: {self.verdict}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def check(path: Union[str, "os.PathLike[str]"], rate: Optional[float] = None, model: Any = None) -> Check:
    """Checks a checkpoint on the CPU, without running its model.

    path: a file that torch.save wrote, read with weights_only=True, a .safetensors file, or a folder of such files.
    rate: the learning rate that updates are judged at, instead of those in the file; above 0.
    model: a torch.nn.Module with the parameters' names in the order in which the optimizer was given them, which safetensors does not keep;
    it is not run, and may be on the meta device.

    Each finding is a dict: "code", "severity" ("error", "warning" or "info"), "title" and "advice" as sentences, and "values" with the
    numbers and names that they are made of. Raises ulpscope.Error where the file cannot be read safely or a package is missing,
    ValueError for a rate that is none."""
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate is no number above 0: {rate}")
    try:
        from ._checkpoint import read
        from ._judgements import judge
    except ImportError as error:
        raise Error(f"checkpoints are read by PyTorch, which cannot be imported: {error}") from error
    name = os.fspath(path)
    findings, facts = judge(read(name, model), rate)
    return Check(name, findings, facts)


def _lines(of: Check) -> List[str]:
    from ._formats import counted

    shown = [finding for finding in of.findings if finding["severity"] != "info"]
    notes = [finding for finding in of.findings if finding["severity"] == "info"]
    if shown:
        lines = _wrapped(f"{of.verdict.upper()}: ", shown[0]["title"], indent=2)
    else:
        lines = ["OK: no numerical problem found."]
    for place, finding in enumerate(shown):
        lines += _wrapped("Cause    ", finding["code"])
        if place:
            lines += _wrapped("  what   ", finding["title"])
        lines += _wrapped("  fix    ", finding["advice"])
    for finding in notes:
        lines += _wrapped("Note     ", f"{finding['title']} {finding['advice']}")
    lines += _wrapped("File     ", _file(of))
    for why in of.facts["left_out"]:
        lines += _wrapped("Left out ", why)
    lines += _table(of.facts["formats"])
    checked, unchecked = _checked(of.facts)
    lines += _wrapped("Checked  ", f"{', '.join(checked)}. Not checked: {', '.join(unchecked)}.")
    ordered = [optimizer for optimizer in of.facts["optimizers"] if optimizer["matched"] == "order" and optimizer["updates"]]
    if ordered:
        lines += _wrapped("", f"The states of {counted(len(ordered), 'optimizer')} have numbers instead of names: "
                          "they were matched with weights by order and shape.", indent=9)
    return lines


def _wrapped(label: str, text: str, indent: Optional[int] = None) -> List[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=label.ljust(indent or 0), subsequent_indent=" " * (len(label) if indent is None else indent),
                         break_long_words=False, break_on_hyphens=False)


def _file(of: Check) -> str:
    from ._formats import counted, power

    weights = of.facts["weights"]
    parts = []
    if weights["tensors"]:
        formats = ", ".join(f"{name} {count:,}" if len(weights["elements_by_format"]) > 1 else name
                            for name, count in weights["elements_by_format"].items())
        parts.append(f"{counted(weights['tensors'], 'tensor')} of {counted(weights['elements'], 'element')} ({formats})")
    for optimizer in of.facts["optimizers"]:
        rates = optimizer["rates"]
        told = [f"{optimizer['rule'] or 'an optimizer'} with states of {counted(optimizer['with_state'], 'parameter')}"]
        told += [f"step {optimizer['steps']:,}"] if optimizer["steps"] is not None else []
        told += [f"learning rate {rates[0]:g}" + (f" to {rates[-1]:g}" if len(rates) > 1 else "")] if rates else []
        parts.append(", ".join(told))
    for scaler in of.facts["scalers"]:
        interval = "" if scaler["growth_interval"] is None else f" of {scaler['growth_interval']:,}"
        parts.append(f"loss scale {power(scaler['scale'])}, growth tracker {scaler['growth_tracker']:,}{interval}")
    return f"{of.path}: {'; '.join(parts)}"


def _table(rows: List[Dict[str, Any]]) -> List[str]:
    if not rows:
        return []
    from ._formats import share

    lines = ["Formats  what they would do to the nonzero elements:   overflow  underflow (to 0)  subnormal"]
    for row in rows:
        name = row["format"] + (", each matrix scaled to 448" if row["scaled"] else "")
        cells = [share(row[key], row["nonzero"]) for key in ("overflow", "flushed", "subnormal")]
        lines.append(f"         {name:<46} {cells[0]:>14}  {cells[1]:>16}  {cells[2]:>9}".rstrip())
    return lines


def _checked(facts: Dict[str, Any]) -> "tuple[List[str], List[str]]":
    checked, unchecked = ["NaN and Inf"], ["activations and gradients, which no checkpoint has"]
    (checked if facts["formats"] else unchecked).append("the range of weights")
    (checked if any(optimizer["rule"] == "Adam" for optimizer in facts["optimizers"]) else unchecked).append("Adam's moments")
    (checked if facts["scalers"] else unchecked).append("loss scale")
    if any(optimizer["updates"] for optimizer in facts["optimizers"]):
        checked.append("lost updates (Adam without weight decay)" if any(o["rule"] == "Adam" for o in facts["optimizers"]) else "lost updates")
    elif facts["optimizers"] and not any(optimizer["matched"] for optimizer in facts["optimizers"]):
        unchecked.append("lost updates, as the file does not tell which weight a state belongs to (ulpscope.check(path, model=model) does)")
    else:
        unchecked.append("lost updates")
    return checked, unchecked


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"ulpscope check: {message}; --help lists the options\n")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command `check`: prints the check of a checkpoint, and returns an exit code.

    0: clean, or findings below --fail-on; 1: findings at or above it; 2: usage; 3: unreadable input; 4: anything else that failed."""
    parser = _Parser(
        prog="python -m ulpscope check", description="Checks a checkpoint without a rerun: NaN and Inf, ranges of formats, Adam's moments, "
        "the loss scale, and updates that round to nothing.",
        epilog="Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage, 3 unreadable input, 4 anything else that failed.")
    parser.add_argument("path", metavar="CHECKPOINT", help="a file of torch.save or safetensors, or a folder of them")
    parser.add_argument("--lr", metavar="RATE", type=float, help="the learning rate that updates are judged at (default: as in the file)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to print (default: text)")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument("--fail-on", choices=("warn", "warning", "error", "never"), default="never",
                        help="exit with 1 where the verdict is as bad (default: never)")
    try:
        given = parser.parse_args(argv)
    except SystemExit as end:
        return _CLEAN if end.code == 0 else _USAGE
    try:
        if given.lr is not None and not (math.isfinite(given.lr) and given.lr > 0):
            print(f"ulpscope check: --lr {given.lr}: expected a number above 0", file=sys.stderr)
            return _USAGE
        made = check(given.path, given.lr)
    except Error as error:
        print(f"ulpscope check: {error}", file=sys.stderr)
        return _UNREADABLE if type(error) is not Error else _FAILED
    print(made.to_json() if given.format == "json" else made.text, end="\n" if given.format == "json" else "")
    bad = {"never": (), "error": ("broken",)}.get(given.fail_on, ("broken", "warning"))
    return _FINDINGS if made.verdict in bad else _CLEAN


if __name__ == "__main__":
    sys.exit(main())
