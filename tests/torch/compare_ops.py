#!/usr/bin/env python3
"""Every differentiable op beside PyTorch: values and gradients of random calls, each within the bound of its roundings.

usage: compare_ops.py RUN_OPS [ROW]... [--cases N] [--seed N] [--keep FOLDER]
RUN_OPS is the program that runs ours. ROW is a row of op_table/, by its name; without one: all. Exits with 77 where PyTorch or
h5py cannot be imported.

The truth is PyTorch in FP64. Ours passes where |ours - truth| is at most the bound (balls.py), and where NaN and Inf stand as in the
truth rounded to the format, or as in PyTorch in that format, whose intermediate results overflow as ours do. Shapes are empty, of
one element, or broadcast; inputs lie in memory in any order, with gaps (of NaN), repeated, or channels-last; a share of the cases has
NaN, Inf, zeros of both signs, subnormal and the largest values in inputs and gradients.

The file of cases: attributes "op" and "attributes" (names, spaced) of "/"; `attributes` [cases, names], NaN where a case has none;
`memory` (f64); `tensors` (i64) with a row for each input, and for each gradient that arrives at an output: case, slot, is gradient,
type, requires a gradient, first and length in memory, offset of the first element, rank, 6 extents, 6 strides. The file of results:
`values` (f64) and `tensors`: case, slot, is gradient, type, rank, 6 extents.
"""

import argparse
import collections
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zlib

try:
    import h5py
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; ops are compared with PyTorch where numpy, h5py and torch can be imported")
    sys.exit(77)

import balls
from op_table import ROWS
from op_table.case import DTYPES, TORCH, Draw, Spec

FLOATS = ("f64", "f32", "f16", "bf16")
MAX_RANK = 6


def quantized(values, dtype):
    if dtype == "f64":
        return values
    return torch.from_numpy(values).to(TORCH[dtype]).double().numpy()


class Lay:
    """How a tensor lies in memory: strides in elements, the offset of its first element, and how many elements it spans."""

    def __init__(self, d, shape, dense):
        rank, style = len(shape), d.random.random()
        order = list(range(rank))  # slowest first
        if style < 0.2:
            order = d.order(rank)
        elif style < 0.35 and rank == 4:
            order = [0, 2, 3, 1]
        gap = d.between(2, 3) if 0.35 <= style < 0.5 and not dense else 1
        repeated = 0.5 <= style < 0.6 and not dense
        self.shape, self.strides, span = shape, [0] * rank, gap
        for i in reversed(order):
            if repeated and d.chance(0.5):
                continue
            self.strides[i] = span
            span *= max(shape[i], 1)
        self.offset = 0 if dense else d.choice([0, 0, 0, 1, 3])
        self.length = span + self.offset

    def of(self, memory):
        size = memory.itemsize
        return np.lib.stride_tricks.as_strided(memory[self.offset:], self.shape, [stride * size for stride in self.strides])


class Tensor:
    def __init__(self, d, spec, dtype, special, dense=False):
        self.spec, self.dtype, self.lay = spec, dtype, Lay(d, spec.shape, dense or spec.in_place)
        self.memory = np.full(self.lay.length, np.nan if dtype in FLOATS else 0.0)
        self.lay.of(self.memory)[...] = self._values(d, special)
        self.values = np.ascontiguousarray(self.lay.of(self.memory)).reshape(spec.shape)

    def _values(self, d, special):
        spec, random = self.spec, d.random
        if spec.integers is not None:
            return random.integers(0, max(spec.integers, 1), spec.shape).astype(float)
        if spec.mask:
            return (random.random(spec.shape) < random.random()).astype(float)
        values, style = random.uniform(spec.low, spec.high, spec.shape), random.random()
        if style < 0.15:
            values = np.rint(values)  # ties, and ones
        elif style < 0.3:
            values = values * np.exp2(random.integers(-8, 1, spec.shape))
        if special and spec.special:
            form = balls.FORMATS[self.dtype]
            least, most = 2 * form.tiny, form.largest if self.dtype != "f64" else 2.0**300  # the truth is no wider than FP64
            values = np.where(random.random(spec.shape) < 0.15, random.choice(
                [math.nan, math.inf, -math.inf, 0.0, -0.0, least, -5 * least, most, -most, 1.0], spec.shape), values)
        return quantized(np.asarray(values), self.dtype)

    def torch(self, dtype):
        """In the layout that ours gets."""
        return torch.from_numpy(self.memory).to(TORCH[dtype]).as_strided(self.spec.shape, self.lay.strides, self.lay.offset)

    def row(self, number, slot, is_gradient, first):
        padded = lambda items: [*items, *([0] * (MAX_RANK - len(items)))]
        requires = self.spec.gradient and self.dtype in FLOATS and not is_gradient
        return [number, slot, is_gradient, DTYPES.index(self.dtype), requires, first, self.lay.length, self.lay.offset,
                len(self.spec.shape), *padded(self.spec.shape), *padded(self.lay.strides)]


class Case:
    """A call: its inputs, what PyTorch makes of it in FP64 and in its type, and the gradients that arrive at its outputs."""

    def __init__(self, row, d):
        self.row, self.dtype = row, d.choice(FLOATS)
        self.special = d.chance(0.2)
        self.specs, self.a = row.draw(d)
        self.inputs = [Tensor(d, spec, self.type_of(spec), self.special) for spec in self.specs]
        self.slots = list(row.slots(self.a))
        self.truth, self.truth_gradients, self.gradients = self.run(row.truth or row.function, lambda t: torch.from_numpy(t.values.copy()), d)
        try:
            self.peer, self.peer_gradients, _ = self.run(row.function, self.peer_input)
        except RuntimeError:  # not implemented for 'Half', and the like
            self.peer, self.peer_gradients = [None] * len(self.truth), [None] * len(self.inputs)

    def type_of(self, spec):
        wide = "f64" if self.dtype == "f64" else "f32"
        return "i64" if spec.integers is not None else "boolean" if spec.mask else wide if spec.wide else self.dtype

    def output_type(self, slot):
        if self.row.op == "cast":
            return DTYPES[int(self.a["dtype"])]
        wide = "f64" if self.dtype == "f64" else "f32"
        return wide if slot < len(self.row.wide) and self.row.wide[slot] else self.dtype

    def peer_input(self, tensor):
        return tensor.torch(tensor.dtype)

    def typed(self, tensors):
        return [t.long() if spec.integers is not None else t.bool() if spec.mask else t for t, spec in zip(tensors, self.specs)]

    def run(self, function, load, d=None):
        """Outputs, and gradients of the inputs. With a Draw: gradients that arrive are drawn."""
        leaves = [load(tensor).requires_grad_(spec.gradient) for tensor, spec in zip(self.inputs, self.specs)]
        arguments = self.typed(leaves)
        if self.row.wide[:1] == (True,):  # a loss: FP32, as autocast runs it
            arguments = [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in arguments]
        outputs = function(*arguments, **self.a)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        differentiable = [i for i, output in enumerate(outputs) if output.requires_grad]
        gradients = self.gradients if d is None else {
            i: Tensor(d, Spec(tuple(outputs[i].shape), -2, 2), self.output_type(i), self.special, dense=True) for i in differentiable}
        found = iter(torch.autograd.grad(
            [outputs[i] for i in differentiable], [leaf for leaf in leaves if leaf.requires_grad],
            [torch.from_numpy(gradients[i].values.copy()).to(outputs[i].dtype) for i in differentiable], allow_unused=True))
        plain = lambda t: None if t is None else t.detach().double().numpy()
        return [plain(t) for t in outputs], [plain(next(found)) if leaf.requires_grad else None for leaf in leaves], gradients

    def describe(self):
        inputs = ", ".join(f"{tensor.dtype} {list(tensor.spec.shape)} strides {tensor.lay.strides}" for tensor in self.inputs)
        return f"{inputs}; {self.a}"

    def model(self):
        """The formulas of the row, which say how far each element may lie from the truth."""
        self.x = [balls.exact(tensor.values) for tensor in self.inputs]
        self.g = {i: balls.exact(gradient.values) for i, gradient in self.gradients.items()}
        values = self.row.value(self) if self.row.value else [balls.exact(t) for t in self.truth]
        if not self.gradients:
            return values, [None] * len(self.inputs)
        parts = self.row.gradient(self) if self.row.gradient else [None if t is None else balls.exact(t) for t in self.truth_gradients]
        return values, parts


def write_cases(path, row, cases):
    names = list(dict.fromkeys(name for case in cases for name in case.a))
    tensors, memory, first = [], [], 0
    for number, case in enumerate(cases):
        for is_gradient, listed in ((0, list(enumerate(case.inputs))), (1, [(case.slots[i], g) for i, g in case.gradients.items()])):
            for slot, tensor in listed:
                tensors.append(tensor.row(number, slot, is_gradient, first))
                memory.append(tensor.memory)
                first += len(tensor.memory)
    # Groups as the project's own reader takes them, with their links in one place.
    with h5py.File(path, "w", libver="v110") as file:
        file.attrs["op"], file.attrs["attributes"] = np.bytes_(row.op), np.bytes_(" ".join(names) or " ")
        file["attributes"] = np.array([[case.a.get(name, math.nan) for name in names or [""]] for case in cases], np.float64)
        file["memory"], file["tensors"] = np.concatenate(memory), np.array(tensors, np.int64)


def read_results(path):
    """{(case, slot, is gradient): (type, values)}"""
    results, first = {}, 0
    with h5py.File(path) as file:
        values = file["values"][()] if "values" in file else np.zeros(0)
        for number, slot, is_gradient, dtype, rank, *shape in (file["tensors"][()].tolist() if "tensors" in file else []):
            size = math.prod(shape[:rank])
            results[number, slot, bool(is_gradient)] = DTYPES[dtype], values[first:first + size].reshape(shape[:rank])
            first += size
    return results


def kind(values):
    return np.where(np.isnan(values), 2, np.where(np.isinf(values), np.sign(values), 0))


class Judge:
    def __init__(self, row):
        self.row, self.elements, self.unbounded, self.peer_outside, self.failures = row, 0, 0, 0, []

    def fail(self, case, number, what):
        self.failures.append(f"{self.row.name}: case {number}: {what}\n    {case.dtype}: {case.describe()}")

    def check(self, case, number, what, found, dtype, truth, ball, peer, nan=None):
        if found is None:
            return self.fail(case, number, f"{what} is missing")
        came, ours = found
        if came != dtype or ours.shape != truth.shape:
            return self.fail(case, number, f"{what} is {came} {list(ours.shape)}, expected {dtype} {list(truth.shape)}")
        form = balls.FORMATS[dtype]
        # The truth is FP64's: it errs by as much as ours does in FP64, and else by 2^-17 of it, the ratio of functions' errors.
        bound = ball.e * (2 if case.dtype == "f64" else 1 + 2.0**-17)
        with np.errstate(all="ignore"):
            error = np.abs(ours - truth)
            good = (ours == truth) | (np.isnan(ours) & np.isnan(truth)) | (error <= bound)
            reach = np.abs(truth) + bound
            good |= np.isinf(ours) & (np.sign(ours) == np.sign(truth)) & (reach >= form.overflow) & np.isfinite(truth)
            free = np.broadcast_to(ball.free, ours.shape) | (np.isfinite(truth) & np.isinf(bound))
            good |= free
            if peer is not None and peer.shape == ours.shape:
                good |= (kind(ours) == kind(peer)) & ~np.isfinite(ours)
                self.peer_outside += int(np.sum(np.isfinite(truth) & ~(np.abs(peer - truth) <= bound) & ~free & (reach < form.overflow)))
            if self.row.formula_decides:
                good |= ((kind(ours) == kind(ball.v)) & ~np.isfinite(ours)) | (~np.isfinite(truth) & (np.abs(ours - ball.v) <= bound))
        if nan is not None:
            good = np.where(nan, np.isnan(ours), good)
        self.elements += ours.size
        self.unbounded += int(np.sum(free))
        if good.all():
            return None
        worst = int(np.argmax(np.where(good, -1, np.where(np.isnan(error), np.inf, error))))
        at = lambda values: float(values.flat[worst]) if values is not None else math.nan
        return self.fail(case, number, f"{what}: element {worst}: ours {at(ours)!r}, PyTorch {at(peer)!r}, FP64 {at(truth)!r}, "
                         f"error {at(error):.3g}, bound {at(np.broadcast_to(bound, ours.shape)):.3g}")

    def judge(self, case, number, results):
        with balls.arithmetic(balls.arithmetic_of(case.dtype)), np.errstate(all="ignore"):
            values, parts = case.model()
            nan = case.row.nan(case) if case.row.nan and case.gradients else [None] * len(case.inputs)
        for i, (truth, ball, peer) in enumerate(zip(case.truth, values, case.peer)):
            self.check(case, number, f"output {case.slots[i]}", results.get((number, case.slots[i], False)), case.output_type(i), truth, ball, peer)
        if not case.gradients:
            return
        for i, (truth, ball, peer) in enumerate(zip(case.truth_gradients, parts, case.peer_gradients)):
            if truth is not None:
                self.check(case, number, f"gradient of input {i}", results.get((number, i, True)), case.inputs[i].dtype, truth, ball, peer, nan[i])


def compare(row, program, count, seed, folder):
    random = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    cases = [Case(row, Draw(random)) for _ in range(count)]
    files = [folder / f"{row.name.replace(' ', '_')}_{what}.h5" for what in ("cases", "results")]
    write_cases(files[0], row, cases)
    files[1].unlink(missing_ok=True)
    judge = Judge(row)
    run = subprocess.run([program, *files], capture_output=True, text=True)
    if run.returncode != 0:
        judge.failures.append(f"{row.name}: {program} ended with {run.returncode}: {run.stderr.strip()}")
        return judge
    refused = {}
    for line in run.stdout.splitlines():
        number, message = line.split(": ", 1)
        refused[int(number)] = message
    results = read_results(files[1])
    for number, case in enumerate(cases):
        if number in refused:
            judge.fail(case, number, f"refused: {refused[number]}")
        else:
            judge.judge(case, number, results)
    return judge


def missing_rows(program):
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split("\n")
    rows = {row.op for row in ROWS}
    return [line.split()[0] for line in listed if line.endswith(" gradient") and line.split()[0] not in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the files of cases and results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # torch 2.13: its BF16 convolutions with dilation and groups can crash
    warnings.simplefilter("ignore")
    names = [row.name for row in ROWS]
    for name in options.rows:
        if name not in names:
            print(f"no row '{name}': there are {', '.join(names)}", file=sys.stderr)
            return 2
    failed = 0
    if not options.rows and (missing := missing_rows(options.program)):
        print(f"FAILED: no row in tests/torch/op_table/ for {', '.join(missing)}")
        failed = 1
    with tempfile.TemporaryDirectory(prefix="ulpscope_ops_") as scratch:
        folder = options.keep or pathlib.Path(scratch)
        for row in ROWS:
            if options.rows and row.name not in options.rows:
                continue
            judge = compare(row, options.program, options.cases, options.seed, folder)
            print(f"{'FAILED' if judge.failures else 'ok':6}  {row.name}: {options.cases} cases, {judge.elements} elements; "
                  f"not bounded: {judge.unbounded}; PyTorch outside of the bound: {judge.peer_outside}", flush=True)
            for line in judge.failures[:3]:
                print(f"  {line}")
            if len(judge.failures) > 3:
                print(f"  and {len(judge.failures) - 3} more")
            failed += bool(judge.failures)
    print(f"{failed} rows failed" if failed else "all rows are within their bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
