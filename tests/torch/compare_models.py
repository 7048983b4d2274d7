#!/usr/bin/env python3
"""Every preset beside PyTorch: the loss, all gradients and buffers of a training step, in FP32 and under FP16 and BF16 autocast.

usage: compare_models.py RUN_MODELS [PRESET]... [--keep FOLDER]
RUN_MODELS is the program that takes our step, and writes the weights and the batch that it began with. The model that PyTorch runs is
made from the experiment by layer_table.py. Exits with 77 where PyTorch or h5py cannot be imported.

The truth is PyTorch's step in FP64, without a rounding. Through a whole network worst cases multiply and say nothing, so how far
roundings may lead from it is measured: steps in FP64 in which every value that our step would round, forward and backward, errs by its
bound, up or down at random: a store by half an ulp, where true ones err by up to that, and a sum of n terms by sqrt(n) units, which is
where n errors of a unit each lead at random. Ours passes where each tensor is no farther from the truth, in the Euclidean norm, than
the farthest of 12 such steps; or of 120, where 12 do not reach it. A ReLU whose input lies within roundings of 0 is on or off by chance,
and its row of a gradient is there or is not: of one that is so in a sixth of the steps (measured in `overflow` in FP16) 12 steps have
none in one case of nine.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
    import tomllib
except ImportError as missing:
    print(f"skipped: {missing}; models are compared with PyTorch where numpy, h5py, torch and tomllib can be imported")
    sys.exit(77)

import balls
from compare_ops import read_results
from layer_table import LOSSES, Typed, sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS, MOST_STEPS = 12, 120
WIDTH = {"f16": 1, "bf16": 1, "f32": 2}
PARAMETER, BUFFER, BATCH, LOSS = range(4)  # in the file of results: what a tensor's first number says

# What makes the gradients that the optimizer gets those of one batch; and small steps on data that is there.
PLAIN = ["scaler.initial=1024", "training.accumulation=1", "clipping.norm=0", "clipping.value=0"]
SMALL = {
    "conv_sine": ["data.height=8", "data.width=8"],
    "fashion_cnn": ["data.kind=random_classification", "data.shape=1,28,28", "training.batch_size=4"],
    "autoencoder": ["data.kind=random_classification", "data.shape=1,28,28", "training.batch_size=4"],
    "gru_text": [f"data.path={ROOT / 'LICENSE'}", "data.context=12", "training.batch_size=2"],
    "lstm_text": [f"data.path={ROOT / 'LICENSE'}", "data.context=12", "training.batch_size=2"],
    "transformer_seq2seq": ["training.batch_size=3"],
    "gpt_mini": [f"data.path={ROOT / 'LICENSE'}", "data.context=24", "training.batch_size=2"],
}


def amplitude(values, terms, form):
    """The error of a sum of `terms` in FP32, stored in `form`."""
    error = terms**0.5 * balls.FORMATS["f32"].unit * values.abs()
    if form.fraction_bits < 23:
        error = error + torch.from_numpy(np.asarray(form.half_ulp(values.abs().numpy())))
    return error


class Err(torch.autograd.Function):
    """The identity, whose value and gradient err by what a rounding may: `forward` and `backward` are (terms, format) or None."""

    @staticmethod
    def forward(context, x, noise, forward, backward):
        context.noise, context.backward_of = noise, backward
        return noise(x, forward) if forward else x.clone()

    @staticmethod
    def backward(context, gradient):
        return (context.noise(gradient, context.backward_of) if context.backward_of else gradient), None, None, None


class Run:
    """A step in FP64. `random`: a generator of the signs of errors, or None for the truth."""

    def __init__(self, lower, parameters, names, random=None):
        self.lower, self.random = lower, random
        self.named = {name: torch.from_numpy(values).requires_grad_() for name, values in zip(names, parameters)}
        self.casts, self.buffers = {}, {}

    def noise(self, values, of):
        terms, form = of
        signs = torch.randint(0, 2, values.shape, generator=self.random, dtype=torch.float64) * 2 - 1
        return values + signs * amplitude(values, terms, balls.FORMATS[form])

    def err(self, x, forward, backward):
        return x if self.random is None else Err.apply(x, self.noise, forward, backward)

    def shaken(self, x, size):
        """x, off by a rounding of values of this size."""
        size = size.expand(x.shape)
        return x if self.random is None else x + self.noise(size, (1, "f32")) - size

    def parameters_of(self, path, name):
        full = f"{path}.{name}"
        return [Typed(self.named[full], "f32")] if full in self.named else []

    def parameter(self, path, name):
        found = self.parameters_of(path, name)
        return found[0] if name == "weight" else found

    def buffer(self, path, name, initial, terms):
        """What a layer changes, by sums of so many terms."""
        values = torch.full(self.named[f"{path}.weight"].shape, initial, dtype=torch.float64)
        self.buffers[f"{path}.{name}"] = values, terms
        return values

    def cast(self, x, form):
        """A parameter is cast once, and its 16-bit gradients are added up there."""
        if x.form == form or x.form == "i64":
            return x.value
        key = (id(x.value), form)
        if key not in self.casts:
            narrows = lambda a, b: (0, b) if WIDTH[b] < WIDTH[a] else None
            self.casts[key] = x.value, self.err(x.value, narrows(x.form, form), narrows(form, x.form))
        return self.casts[key][1]

    def shared(self, *parameters, terms):
        """Parameters of many products in the lower precision, whose gradient is one sum of so many terms."""
        return [self.err(self.cast(p, self.lower), None, (terms, self.lower)) for p in parameters]

    def op(self, kind, function, *inputs, terms=1, backward=1):
        """`kind`: lower and fp32 are classes of autocast; input: in the widest type of the inputs; first: in that of the first."""
        typed = [x.form for x in inputs if x.form != "i64"]
        form = {"lower": self.lower, "fp32": "f32", "first": typed[0]}.get(kind) or max(typed, key=WIDTH.get)
        values = [x.value if kind == "first" else self.cast(x, form) for x in inputs]
        values = [v if x.form == "i64" else self.err(v, None, (backward, "f32" if kind == "first" and x.form == "f32" else form))
                  for v, x in zip(values, inputs)]
        result = function(*values)
        if isinstance(result, tuple):
            return tuple(Typed(self.err(each, (terms, form), None), form) for each in result)
        return Typed(self.err(result, (terms, form), None), form)

    def stored(self, x, form):
        """As an op keeps it for its backward pass."""
        return self.err(x, (1, form), None)

    def step(self, experiment, inputs, targets, scale):
        x = Typed(inputs, "f32" if inputs.dtype == torch.float64 else "i64")
        output = sequence(self, experiment["model"]["layers"], "", x)
        function = experiment["loss"]["function"]
        if function not in LOSSES:
            raise NotImplementedError(f"the loss {function}")
        loss = LOSSES[function](self, output, targets)
        (loss.value * scale * experiment["loss"]["factor"]).backward()
        found = {"loss": loss.value.detach().numpy() * experiment["loss"]["factor"]}
        found |= {f"gradient of {name}": p.grad.numpy() / scale for name, p in self.named.items()}
        return found | {name: (self.noise(buffer, (terms, "f32")) if self.random else buffer).numpy()
                        for name, (buffer, terms) in self.buffers.items()}


def distance(a, b):
    return float(np.linalg.norm(np.ravel(a) - np.ravel(b)))


def compare(program, name, precision, folder):
    """Lines that say what is wrong, and what was compared."""
    path = folder / f"{name}_{precision}.h5"
    path.unlink(missing_ok=True)
    settings = [f"precision={precision}", *PLAIN, *SMALL.get(name, ["training.batch_size=4"])]
    run = subprocess.run([program, ROOT / f"experiments/{name}.toml", path, *settings], capture_output=True, text=True)
    if run.returncode != 0:
        return [f"the program ended with {run.returncode}: {run.stderr.strip()}"], ""
    results = read_results(path)
    with h5py.File(path) as file:
        experiment = tomllib.loads(file.attrs["experiment"].decode())
        names, buffers = (file.attrs[key].decode().split() for key in ("parameters", "buffers"))
    if (PARAMETER, 0, True) not in results:
        return ["the step was skipped: gradients are not finite"], ""
    ours = {"loss": results[LOSS, 0, False][1]}
    ours |= {f"gradient of {p}": results[PARAMETER, i, True][1] for i, p in enumerate(names)}
    ours |= {b: results[BUFFER, i, False][1] for i, b in enumerate(buffers)}
    parameters = [results[PARAMETER, i, False][1] for i in range(len(names))]
    (_, inputs), (_, targets) = (results[BATCH, i, False] for i in range(2))
    batch = [torch.from_numpy(v).long() if results[BATCH, i, False][0] == "i64" else torch.from_numpy(v) for i, v in enumerate((inputs, targets))]
    lower = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}[precision]
    scale = 1024 if precision == "fp16" else 1
    step = lambda seed: Run(lower, parameters, names, seed if seed is None else torch.Generator().manual_seed(seed)).step(experiment, *batch, scale)
    truth = step(None)
    reach = collections.defaultdict(float)
    is_reached = lambda: all(distance(ours[what], values) <= reach[what] for what, values in truth.items() if ours[what].shape == values.shape)
    for seed in range(MOST_STEPS):
        if seed >= STEPS and is_reached():
            break
        for what, values in step(seed).items():
            reach[what] = max(reach[what], distance(values, truth[what]))
    failures, worst = [], (0.0, "")
    for what, values in truth.items():
        if ours[what].shape != values.shape:
            failures.append(f"{what}: ours has shape {list(ours[what].shape)}, PyTorch's {list(values.shape)}")
            continue
        error, norm = distance(ours[what], values), float(np.linalg.norm(values))
        if not error <= reach[what]:
            failures.append(f"{what}: {error:.3g} from FP64, of norm {norm:.3g}; roundings lead as far as {reach[what]:.3g}")
        if reach[what] > 0:
            worst = max(worst, (error / reach[what], what))
    return failures, f"{len(truth)} tensors; the farthest from FP64, at {worst[0]:.2f} of what roundings may: {worst[1]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the files of results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    presets = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ulpscope_models_") as scratch:
        for name in options.presets or presets:
            for precision in ("fp32", "fp16", "bf16"):
                try:
                    failures, said = compare(options.program, name, precision, options.keep or pathlib.Path(scratch))
                except NotImplementedError as missing:
                    failures, said = [f"no row for {missing} in tests/torch/layer_table.py"], ""
                print(f"{'FAILED' if failures else 'ok':6}  {name} {precision}: {said}", flush=True)
                for line in failures[:5]:
                    print(f"  {line}")
                failed += bool(failures)
    print(f"{failed} models failed" if failed else "all models are as near to FP64 as roundings allow")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
