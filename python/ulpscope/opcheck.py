"""Two implementations of one computation, as of two kernels: which is nearer to the exact result, in outputs and in gradients."""

import argparse
import html
import importlib
import json
import os
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from ._library import Error
from ._report import named

_MOST = 1.1
_CLEAN, _FINDINGS, _USAGE, _UNREADABLE, _FAILED = 0, 1, 2, 3, 4  # as the program has them


class OpCheck:
    """The result of a check: .tensors, a dict for each output and gradient, .problems, sentences, and .text.

    Of a tensor: "name" ("output 0", "gradient of input 1"), "format" (of the candidate's numbers), "elements"; "error_ratio": the norm
    of the candidate's error over that of the reference's, None where the reference has none; "judged_ratio": over the larger one of that
    and half an ulp an element, which correctly rounded results may be off; "candidate_over_rounded", "reference_over_rounded": over the
    errors of the exact numbers rounded once, None where those have none; "largest_ulps", "reference_largest_ulps"; "made_nonfinite":
    elements with NaN or Inf where the reference has none; "differs": elements whose bits another run of the candidate has otherwise;
    "worst": the elements that are farthest off, as `ulpscope diff` has them."""

    def __init__(self, tensors: List[Dict[str, Any]], problems: List[str]) -> None:
        self.tensors = tensors
        self.problems = problems

    def worse(self, most: float = _MOST) -> List[str]:
        """Why the candidate is worse than the reference, a sentence each: what `problems` has, NaN or Inf where the reference has none,
        and errors above `most` times the larger one of the reference's and what correctly rounded results may have."""
        found = list(self.problems)
        for each in self.tensors:
            if each["made_nonfinite"]:
                found.append(f"{each['name']} has NaN or Inf in {each['made_nonfinite']:,} of {each['elements']:,} elements where the "
                             "reference has none.")
            if each["judged_ratio"] > most:
                found.append(f"{each['name']} is off by {each['judged_ratio']:.3g} times what the reference or correct rounding is "
                             f"({each['format']}, up to {each['largest_ulps']:.3g} ulps at {each['worst'][0]['element']}).")
        return found

    def assert_no_worse(self, most: float = _MOST) -> None:
        """Raises AssertionError with the sentences of worse(), where there are any."""
        found = self.worse(most)
        if found:
            raise AssertionError("the candidate is worse than the reference:\n" + "\n".join(f"  {each}" for each in found))

    @property
    def text(self) -> str:
        """The check as the command prints it."""
        return self.text_of(_MOST)

    def text_of(self, most: float) -> str:
        """The check with another limit of worse()."""
        lines = [f"WORSE: {each}" for each in self.worse(most)] or ["OK: the candidate is no worse than the reference."]
        if self.tensors:
            columns = ("", "format", "elements", "error over the reference's", "over rounded", "ulps at most", "reference's")
            rows = [columns, *(_row(each) for each in self.tensors)]
            widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
            for row in rows:
                first = "  ".join(cell.ljust(width) for cell, width in zip(row[:2], widths))
                lines.append(f"  {first}  " + "  ".join(cell.rjust(width) for cell, width in zip(row[2:], widths[2:])))
        lines += [f"{each['name']}: {each['differs']:,} of {each['elements']:,} elements have other bits when the candidate runs again."
                  for each in self.tensors if each["differs"]]
        return "\n".join(lines) + "\n"

    def to_json(self, most: float = _MOST) -> str:
        """One object: worse, problems, tensors; infinities are "Infinity"."""
        whole = {"worse": self.worse(most), "problems": self.problems, "tensors": self.tensors}
        return json.dumps(named(whole), indent=2)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ulpscope opcheck of {len(self.tensors)} tensors: {'worse' if self.worse() else 'no worse'}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def opcheck(candidate: Callable[..., Any], reference: Callable[..., Any], inputs: Sequence[Any], *, grad: bool = True) -> OpCheck:
    """Runs both on copies of the inputs, and the reference once more in FP64, and says which of the two is nearer to that.

    candidate, reference: take the inputs, and return a tensor, or a list, tuple or dict of tensors. The reference has to run in FP64.
    inputs: tensors and whatever else both take; floating-point tensors of FP32, FP16, BF16 or FP8 (which no gradient reaches).
    grad: the gradients of the floating-point inputs, too, from one random gradient of each output, the same for all.

    What the candidate does wrong (it raises, changes its inputs, returns other shapes or types) is among `problems`. Raises TypeError
    and ValueError for other arguments, what the reference raises, Error where the program `ulpscope` or numpy cannot be had, and
    ImportError without torch."""
    from .torch.op_runs import run

    return OpCheck(*run(candidate, reference, inputs, grad))


def _row(each: Dict[str, Any]) -> Sequence[str]:
    def ratio(value: Optional[float]) -> str:
        return "-" if value is None else f"{value:.3g}"

    return (each["name"], each["format"], f"{each['elements']:,}", ratio(each["error_ratio"]), ratio(each["candidate_over_rounded"]),
            ratio(each["largest_ulps"]), ratio(each["reference_largest_ulps"]))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"ulpscope opcheck: {message}; --help lists the options\n")


def _function(name: str) -> Callable[..., Any]:
    module, colon, path = name.partition(":")
    if not colon or not path:
        raise Error(f"{name}: expected MODULE:FUNCTION")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Error(f"{name}: {error}") from error
    if not callable(found):
        raise Error(f"{name} is no function")
    called: Callable[..., Any] = found
    return called


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command `opcheck`: prints the check, and returns an exit code.

    0: no worse; 1: worse; 2: usage; 3: unreadable inputs; 4: anything else that failed."""
    parser = _Parser(
        prog="python -m ulpscope opcheck", description="Runs two implementations of one computation on the same inputs, and says which is "
        "nearer to the reference in FP64, in outputs and gradients.",
        epilog="Exit codes: 0 no worse, 1 worse, 2 usage, 3 unreadable inputs, 4 anything else that failed.")
    parser.add_argument("candidate", metavar="MODULE:FUNCTION", help="what is in question, as my_kernels:softmax")
    parser.add_argument("--reference", metavar="MODULE:FUNCTION", required=True, help="what it is held against; it has to run in FP64")
    given_inputs = parser.add_mutually_exclusive_group(required=True)
    given_inputs.add_argument("--inputs", metavar="FILE", help="a file of torch.save with a list of what both take")
    given_inputs.add_argument("--shapes", metavar="SHAPES", help="random normal inputs of these shapes, as 64x512,512x128")
    parser.add_argument("--dtype", default="float32", help="of --shapes: float32, float16 or bfloat16 (default: float32)",
                        choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--seed", type=int, default=0, help="of --shapes (default: 0)")
    parser.add_argument("--no-grad", action="store_true", help="outputs alone")
    parser.add_argument("--most", metavar="R", type=float, default=_MOST, help=f"how many times the reference's error is worse (default: {_MOST})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        given = parser.parse_args(argv)
    except SystemExit as end:
        return _CLEAN if end.code == 0 else _USAGE
    if not given.most > 0:
        print(f"ulpscope opcheck: --most {given.most}: expected a number above 0", file=sys.stderr)
        return _USAGE
    sys.path.insert(0, os.getcwd())
    try:
        candidate, reference = _function(given.candidate), _function(given.reference)
        from .torch.op_runs import load_inputs, random_inputs

        inputs = load_inputs(given.inputs) if given.inputs else random_inputs(given.shapes, given.dtype, given.seed)
        made = opcheck(candidate, reference, inputs, grad=not given.no_grad)
    except (Error, ImportError, TypeError, ValueError, RuntimeError) as error:
        print(f"ulpscope opcheck: {error}", file=sys.stderr)
        return _UNREADABLE if isinstance(error, Error) and type(error) is not Error else _FAILED
    worse = made.worse(given.most)
    print(made.to_json(given.most) if given.json else made.text_of(given.most), end="\n" if given.json else "")
    return _FINDINGS if worse else _CLEAN
