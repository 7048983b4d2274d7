#!/usr/bin/env python3
"""Optimizers beside PyTorch: weights and states over 50 updates, in 16 bits bit for bit, in FP32 within the bound of their operations.

usage: compare_optimizers.py RUN_OPTIMIZERS
RUN_OPTIMIZERS is the program that runs ours. Exits with 77 where PyTorch or numpy cannot be imported, or was built for a CPU without
fused operations, which its results in 16 bits depend on.

PyTorch's are its single-tensor optimizers on the CPU. It has no Lion; here that is the code of its authors, in the same tensor
operations. Two things that PyTorch's results depend on besides the numbers are kept out: elements behind the last whole vector, of
which `add` rounds the product too, and threads, which move that end.

In FP32 the truth is the same optimizer in FP64. The bound comes from a running error analysis (balls.py) of the rule with a rounding
after every operation, over all 50 updates: weights and states enter an update with the error that they left the last one with. SGD,
and Lion without decay, have PyTorch's bits in FP32 as well. Adam's roots are rounded less well there than ours, and decay of the weight
is a rounding of its own.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; optimizers are compared with PyTorch where numpy and torch can be imported")
    sys.exit(77)

import balls

STEPS = 50
SIZE = 4096  # a multiple of what PyTorch's loops take at once
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Powers of two between which gradients lie: far enough down that their squares, and some of them, vanish, and up that sums overflow.
GRADIENTS = {"f32": (-40, 30), "f16": (-25, 15), "bf16": (-136, 80)}

SGD = {"momentum": 0.0, "dampening": 0.0, "nesterov": 0.0}
ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
LION = {"beta1": 0.9, "beta2": 0.99}
CASES = [
    ("sgd", {**SGD, "lr": 0.1, "weight_decay": 0.0}),
    ("sgd", {**SGD, "lr": 0.03, "weight_decay": 0.07}),
    ("sgd", {**SGD, "lr": 0.01, "weight_decay": 0.0, "momentum": 0.9}),
    ("sgd", {**SGD, "lr": 0.02, "weight_decay": 1e-3, "momentum": 0.8, "dampening": 0.3}),
    ("sgd", {**SGD, "lr": 0.05, "weight_decay": 0.02, "momentum": 0.9, "nesterov": 1.0}),
    ("adam", {**ADAM, "lr": 1e-3, "weight_decay": 0.0}),
    ("adam", {**ADAM, "lr": 0.01, "weight_decay": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-4}),
    ("adam", {**ADAM, "lr": 0.01, "weight_decay": 0.0, "beta1": 0.3, "eps": 1e-3}),
    ("adamw", {**ADAM, "lr": 1e-3, "weight_decay": 0.01}),
    ("adamw", {**ADAM, "lr": 0.02, "weight_decay": 0.5, "eps": 1e-6}),
    ("adamw", {**ADAM, "lr": 0.1, "weight_decay": 0.1, "beta2": 0.95, "eps": 1e-3}),
    ("lion", {**LION, "lr": 1e-3, "weight_decay": 0.0}),
    ("lion", {**LION, "lr": 3e-3, "weight_decay": 0.1}),
    ("lion", {**LION, "lr": 0.02, "weight_decay": 0.5, "beta1": 0.95, "beta2": 0.98}),
]


class Lion(torch.optim.Optimizer):
    """X. Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
                mean = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.add_((mean * beta1 + p.grad * (1 - beta1)).sign_(), alpha=-group["lr"])
                mean.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def optimizer_of(name, options, weights):
    common = {"lr": options["lr"], "weight_decay": options["weight_decay"]}
    single = {"foreach": False, "fused": False}
    if name == "sgd":
        return torch.optim.SGD([weights], **common, **single, momentum=options["momentum"], dampening=options["dampening"],
                               nesterov=bool(options["nesterov"]))
    betas = (options["beta1"], options["beta2"])
    if name == "lion":
        return Lion([weights], betas=betas, **common)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]([weights], betas=betas, eps=options["eps"], **common, **single)


def theirs(name, options, rows, dtype):
    """The weights and the states after each step, as rows."""
    weights = torch.from_numpy(rows[0]).to(dtype, copy=True)
    optimizer = optimizer_of(name, options, weights)
    result = []
    for gradient in rows[1:]:
        weights.grad = torch.from_numpy(gradient).to(dtype)
        optimizer.step()
        state = optimizer.state[weights]
        kept = [state.get(key) for key in ("momentum_buffer", "exp_avg", "exp_avg_sq")]
        result.append([tensor.double().numpy().copy() for tensor in [weights, *kept] if tensor is not None])
    return np.array(result)


def ours(program, folder, name, options, rows, type_name):
    rows.astype(np.float32).tofile(folder / "input")
    settings = [f"{key}={value!r}" for key, value in options.items()]
    subprocess.run([program, name, type_name, *settings, str(SIZE), str(folder / "input"), str(folder / "result")], check=True)
    return np.fromfile(folder / "result", np.float32).astype(np.float64).reshape(STEPS, -1, SIZE)


def bounds(name, options, rows):
    """What the weights and the states may err by after each step in FP32, as rows."""
    lr, decay = options["lr"], options["weight_decay"]
    weights = balls.exact(rows[0].astype(np.float64))
    states = []
    result = []
    for step, row in enumerate(rows[1:], 1):
        g = balls.exact(row.astype(np.float64))
        if name == "sgd":
            direction = g + decay * weights if decay else g
            if options["momentum"]:
                states = [options["momentum"] * states[0] + (1 - options["dampening"]) * direction if states else direction]
                direction = direction + options["momentum"] * states[0] if options["nesterov"] else states[0]
            d = -lr * direction
        elif name == "lion":
            beta1, beta2 = options["beta1"], options["beta2"]
            mean = states[0] if states else balls.exact(np.zeros(SIZE))
            direction = beta1 * mean + (1 - beta1) * g
            # Where rounding may turn the direction, the step may be any between the two.
            sign = balls.Ball(np.sign(direction.v), np.where(np.abs(direction.v) > direction.e, 0, 2))
            d = -lr * sign
            states = [beta2 * mean + (1 - beta2) * g]
        else:
            beta1, beta2 = options["beta1"], options["beta2"]
            mean, square = states or [balls.exact(np.zeros(SIZE))] * 2
            direction = g + decay * weights if decay and name == "adam" else g
            change = direction - mean
            mean = mean + (1 - beta1) * change if beta1 > 0.5 else direction - beta1 * change
            square = beta2 * square + ((1 - beta2) * direction) * direction
            states = [mean, square]
            denominator = square.sqrt() / (1 - beta2**step) ** 0.5 + options["eps"]
            d = (-lr / (1 - beta1**step) * mean) / denominator
        if decay and name in ("adamw", "lion"):
            d = d + -lr * decay * weights
        weights = weights + d
        result.append([np.where(b.free, np.inf, b.e) for b in [weights, *states]])
    return np.array(result)


def same(a, b):
    return (a == b) | (np.isnan(a) & np.isnan(b))


def rows_of(rng, type_name):
    """Weights and the gradients of each step. Elements of gradients lie around a scale of their own; some are zero."""
    low, high = GRADIENTS[type_name]
    weights = rng.standard_normal(SIZE) * np.exp2(rng.uniform(-12, 6, SIZE))
    scale = rng.uniform(low, high, SIZE)
    gradients = rng.standard_normal((STEPS, SIZE)) * np.exp2(np.clip(scale + rng.uniform(-2, 2, (STEPS, SIZE)), low, high))
    gradients[rng.random((STEPS, SIZE)) < 0.05] = 0
    values = torch.from_numpy(np.vstack([weights, gradients])).to(TYPES[type_name])
    # A sum of zero times Inf is no number in PyTorch's Lion, whose sign is 0 there: gradients are finite.
    return values.clamp(torch.finfo(values.dtype).min, torch.finfo(values.dtype).max).float().numpy()


def compare(run, rng, name, options, type_name):
    rows = rows_of(rng, type_name)
    got = run(name, options, rows, type_name)
    what = f"{name} {type_name} " + " ".join(f"{key}={value:g}" for key, value in options.items() if value)
    wrong = np.zeros(got.shape, bool)
    if type_name != "f32" or name == "sgd" or (name == "lion" and not options["weight_decay"]):
        wrong = ~same(got, theirs(name, options, rows, TYPES[type_name]))
    detail = f"{np.isfinite(got[-1][0]).mean():.1%} of the weights finite at the end"
    if type_name == "f32":
        truth, bound = theirs(name, options, rows, torch.float64), bounds(name, options, rows)
        error = np.abs(got - truth)
        wrong |= ~(error <= bound)
        units = np.median(bound[-1][0] / np.abs(truth[-1][0])) / balls.FORMATS["f32"].unit
        detail += f", bounded {np.isfinite(bound).mean():.2%}, the last weights within {units:.3g} units, " \
                 f"errors up to {np.nanmax(error / bound):.2f} of the bound"
    print(f"{what}: {got.size} numbers, {int(wrong.sum())} differ; {detail}")
    if wrong.any():
        step, slot, element = np.argwhere(wrong)[0]
        print(f"  first in step {step + 1}, {'weight' if slot == 0 else f'state {slot}'} {element}")
    return int(wrong.sum())


def compare_lost_decay(run, rng):
    """lr weight_decay = 1e-4 is below half the smallest distance of BF16 numbers from 1, 2^-9: the decay of AdamW and Lion is lost."""
    wrong = 0
    for name, options in (("adamw", {**ADAM, "lr": 1e-3, "weight_decay": 0.1}), ("lion", {**LION, "lr": 1e-3, "weight_decay": 0.1})):
        rows = rows_of(rng, "bf16")
        without = {**options, "weight_decay": 0.0}
        for results in ([run(name, o, rows, "bf16") for o in (options, without)],
                        [theirs(name, o, rows, torch.bfloat16) for o in (options, without)]):
            wrong += int((~same(*results)).sum())
        got = run(name, options, rows, "f32")
        arrives = np.any(got[-1] != run(name, without, rows, "f32")[-1])
        print(f"{name}: in BF16 {wrong} numbers feel the decay; in FP32 weights {'do' if arrives else 'do not'}")
        wrong += not arrives
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        print(f"skipped: PyTorch's kernels for {torch.backends.cpu.get_cpu_capability()}; expected AVX2 or AVX512")
        sys.exit(77)
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    rng = np.random.default_rng(8)
    with tempfile.TemporaryDirectory() as path:
        run = lambda *arguments: ours(sys.argv[1], pathlib.Path(path), *arguments)
        wrong = sum(compare(run, rng, name, options, type_name) for name, options in CASES for type_name in TYPES)
        wrong += compare_lost_decay(run, rng)
    sys.exit(1 if wrong else 0)


main()
