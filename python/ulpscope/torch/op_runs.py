"""Runs of two implementations on the same inputs, and of the reference in FP64; the program compares what they give."""

import os
import tempfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _checkpoint, _report
from .._library import Error
from .leaves import tensors_in

# Formats of the program, and the type under which NumPy has the bits where it lacks the numbers.
_FORMATS: Dict[torch.dtype, Tuple[str, Optional[torch.dtype]]] = {
    torch.float32: ("fp32", None), torch.float16: ("fp16", None), torch.bfloat16: ("bf16", torch.int16),
    torch.float8_e4m3fn: ("e4m3", torch.uint8), torch.float8_e5m2: ("e5m2", torch.uint8),
    torch.float8_e4m3fnuz: ("e4m3fnuz", torch.uint8), torch.float8_e5m2fnuz: ("e5m2fnuz", torch.uint8)}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Compared(NamedTuple):
    """opcheck.OpCheck says what they hold."""

    tensors: List[Dict[str, Any]]
    problems: List[str]


class _Run(NamedTuple):
    """The outputs of a function, and the gradients of the inputs that have one, by the inputs' places."""

    outputs: List[torch.Tensor]
    gradients: Dict[int, torch.Tensor]
    starts: List[torch.Tensor]  # the gradients of the outputs


def run(candidate: Callable[..., Any], reference: Callable[..., Any], inputs: Sequence[Any], grad: bool) -> Compared:
    """opcheck() says what it does, and what it raises."""
    for name, function in (("candidate", candidate), ("reference", reference)):
        if not callable(function):
            raise TypeError(f"{name} is a {type(function).__name__}, and no function")
    if isinstance(inputs, torch.Tensor) or not isinstance(inputs, Sequence):
        raise TypeError(f"inputs are a {type(inputs).__name__}: expected a list of what both take")
    given = list(inputs)
    floating = [place for place, each in enumerate(given) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    if not floating:
        raise ValueError("inputs have no tensor of floating-point numbers")
    for place in floating:
        if given[place].dtype not in _FORMATS:
            raise ValueError(f"input {place} is {_type(given[place])}: nothing wider is at hand to compare with")

    plain = _call(reference, given, None, grad)
    problems: List[str] = []
    for place, output in enumerate(plain.outputs):
        if output.dtype not in _FORMATS:
            raise ValueError(f"output {place} of the reference is {_type(output)}: expected FP32, FP16, BF16 or FP8")
    starts = plain.starts
    exact = _call(reference, given, torch.float64, grad, starts)
    if len(exact.outputs) != len(plain.outputs) or any(each.dtype != torch.float64 for each in exact.outputs):
        raise ValueError("the reference gives other outputs, or types, where its inputs are FP64")

    try:
        made = _call(candidate, given, None, grad, starts, problems)
        again = _call(candidate, given, None, grad, starts)
    except Exception as error:  # whatever it is, it is the candidate's
        return Compared([], [*problems, f"The candidate raises {type(error).__name__}: {error}"])
    tensors: List[Dict[str, Any]] = []
    for name, parts in _pairs(made, plain, exact, again, problems):
        tensors.append(_compare(name, *parts))
    return Compared(tensors, problems)


def random_inputs(shapes: str, dtype: str, seed: int) -> List[torch.Tensor]:
    """Normal numbers of mean 0 and deviation 1 in these shapes ("64x512,512"), as a type of PyTorch names it. Raises ValueError."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for text in shapes.split(","):
        try:
            shape = [int(extent) for extent in text.split("x")]
        except ValueError:
            shape = [0]
        if min(shape) < 1:
            raise ValueError(f"--shapes: expected shapes as 64x512,512x128, found {text!r}")
        made.append(torch.randn(shape, generator=generator).to(getattr(torch, dtype)))
    return made


def load_inputs(path: str) -> List[Any]:
    """Reads a file of torch.save safely, which holds a list, or one tensor. Raises Unreadable."""
    held = _checkpoint.load_torch(path)
    if isinstance(held, torch.Tensor):
        return [held]
    if not isinstance(held, (list, tuple)):
        raise _checkpoint.Unreadable(f"{path} holds a {type(held).__name__}: expected a list of what both functions take")
    return list(held)


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).replace("torch.", "")


def _call(function: Callable[..., Any], inputs: List[Any], dtype: Optional[torch.dtype], grad: bool,
          starts: Optional[List[torch.Tensor]] = None, problems: Optional[List[str]] = None) -> _Run:
    """One run on copies, with `grad` backwards too, from `starts` or new ones. `problems` are told of inputs that it changes."""
    leaves: Dict[int, torch.Tensor] = {}
    passed: List[Any] = []
    for place, each in enumerate(inputs):
        if isinstance(each, torch.Tensor):
            leaf = each.detach().clone()
            if leaf.is_floating_point():
                leaf = leaf if dtype is None else leaf.to(dtype)
                if grad and leaf.element_size() > 1:
                    leaves[place] = leaf.requires_grad_()
            each = leaf.clone()  # no leaf, which autograd refuses to change in place
        passed.append(each)
    outputs = tensors_in(function(*passed))
    if not outputs:
        raise ValueError(f"{getattr(function, '__name__', 'the function')} returned no tensor")
    if problems is not None and dtype is None:
        problems += [f"The candidate changes input {place}." for place, (after, each) in enumerate(zip(passed, inputs))
                     if isinstance(each, torch.Tensor) and not _is_same(after, each)]
    gradients: Dict[int, torch.Tensor] = {}
    starts = _starts(outputs) if starts is None else starts
    roots = [(output, start) for output, start in zip(outputs, starts)
             if output.requires_grad and output.shape == start.shape]
    if leaves and roots:
        found = torch.autograd.grad([root for root, _ in roots], list(leaves.values()),
                                    [start.to(root.dtype) for root, start in roots], allow_unused=True)
        gradients = {place: each.detach() for place, each in zip(leaves, found) if each is not None}
    return _Run([output.detach() for output in outputs], gradients, starts)


def _starts(outputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """The gradients that backward passes begin with: numbers of the outputs' types, so that all runs have the same."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(output.shape, generator=generator).to(output.device).to(output.dtype) for output in outputs]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().view(_BITS[tensor.element_size()]) if tensor.is_floating_point() else tensor.detach().cpu()


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(_bits(a), _bits(b)))


_Parts = Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # candidate, reference, exact, candidate again
_Found = List[Optional[torch.Tensor]]  # the same, where they are


def _pairs(made: _Run, plain: _Run, exact: _Run, again: _Run, problems: List[str]) -> Iterator[Tuple[str, _Parts]]:
    """Yields all that can be compared, by name; `problems` are told of the rest."""
    if len(made.outputs) != len(plain.outputs):
        problems.append(f"The candidate returns {len(made.outputs)} tensors, and the reference {len(plain.outputs)}.")
        return
    outputs: List[Tuple[str, _Found]] = [
        (f"output {place}", [run.outputs[place] for run in (made, plain, exact, again)]) for place in range(len(plain.outputs))]
    gradients: List[Tuple[str, _Found]] = [
        (f"gradient of input {place}", [run.gradients.get(place) for run in (made, plain, exact, again)])
        for place in sorted(plain.gradients.keys() | made.gradients.keys())]
    if any(ours is not None and theirs is not None and ours.shape != theirs.shape for _, (ours, theirs, _, _) in outputs):
        gradients = []  # of other outputs
    for name, (ours, theirs, wide, second) in outputs + gradients:
        if ours is None or theirs is None or wide is None or second is None:
            problems.append(f"{name[:1].upper()}{name[1:]}: {'the candidate' if ours is None else 'the reference'} gives none.")
        elif ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            problems.append(f"{name[:1].upper()}{name[1:]} is {list(ours.shape)} of {_type(ours)}, and the reference's "
                            f"{list(theirs.shape)} of {_type(theirs)}.")
        else:
            yield name, (ours, theirs, wide, second)


def _save(path: str, tensor: torch.Tensor) -> None:
    try:
        import numpy
    except ImportError as error:
        raise Error(f"opcheck needs numpy, which cannot be imported: {error}") from error
    bits = _FORMATS[tensor.dtype][1] if tensor.dtype in _FORMATS else None
    held = tensor.cpu().contiguous()
    if bits is None:
        numpy.save(path, held.numpy())
    else:
        numpy.save(path, held.view(bits).numpy().view(f"u{held.element_size()}"))


def _compare(name: str, ours: torch.Tensor, theirs: torch.Tensor, wide: torch.Tensor, second: torch.Tensor) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{each}.npy") for each in ("candidate", "reference", "exact")]
        for path, tensor in zip(paths, (ours, theirs, wide)):
            _save(path, tensor)
        format_name = _FORMATS[ours.dtype][0]
        found = _report.difference(paths[0], paths[1], paths[2], format_name)
    rows = {table["name"]: [row["values"] for row in table["rows"]] for table in found["tables"]}
    candidate, reference, _ = rows["errors"]
    return {"name": name, "format": format_name, "elements": found["elements"], "error_ratio": found["error_ratio"],
            "judged_ratio": found["judged_ratio"], "candidate_over_rounded": candidate["over_rounded"],
            "reference_over_rounded": reference["over_rounded"], "largest_ulps": candidate["largest_ulps"],
            "reference_largest_ulps": reference["largest_ulps"], "made_nonfinite": found["made_nonfinite"],
            "differs": int((_bits(ours) != _bits(second)).sum()), "worst": rows.get("worst", [])}
