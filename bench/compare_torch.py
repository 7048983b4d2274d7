#!/usr/bin/env python3
"""Times training steps of ours (build/release/bench/step_bench) and of PyTorch, in turns, with the same number of threads.

usage: compare_torch.py [WORKLOAD]... [--threads N] [--rounds N] [--seconds S] [--turns N] [--precision NAME]... [--record LEVEL]...
                        [--program FILE] [--device cpu|cuda] [--check]
Prints a JSON line for each measurement: {"round", "name", "ms", ...}. Without PyTorch it says so and times ours alone. A workload
whose two models have different numbers of parameters ends it with an error, and --check looks for that alone.

step_bench prints a line for each precision and recording level, whose steps it interleaves, S seconds each:
{"workload": "mlp", "precision": "fp32", "record": "off", "parameters": 101386, "ms": 0.42, ...}, ms being the median.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import targets

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP_BENCH = ROOT / "build/release/bench/step_bench"
PRECISIONS = ("fp32", "fp16", "bf16")

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    torch = None


# What step_bench runs where that is no preset of the workload's name.
EXPERIMENTS = {
    "conv_sine_512": ("conv_sine", "--set", "data.height=512", "--set", "data.width=512"),
    "gpt_large": (pathlib.Path(__file__).resolve().parent / "gpt_large.toml",),
}
OF_TEXTS = {"gpt_mini", "gpt_large", "lstm_text"}


def workload(name):
    """Model, inputs, targets and loss, as in the experiment that ulpscope runs."""
    labels = lambda batch: torch.randint(0, 10, (batch,))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        return model, torch.randn(32, 128), labels(32), functional.cross_entropy
    if name == "mlp_big":
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, torch.randn(256, 784), labels(256), functional.cross_entropy
    if name in ("conv_sine", "conv_sine_512"):
        extent = 512 if name == "conv_sine_512" else 128
        layers, channels = [], 2
        for _ in range(3):
            layers += [nn.Conv2d(channels, 256, 1), nn.BatchNorm2d(256), nn.ReLU()]
            channels = 256
        return nn.Sequential(*layers, nn.Conv2d(256, 1, 1)), torch.rand(1, 2, extent, extent), torch.rand(1, 1, extent, extent), functional.mse_loss
    if name == "fashion_cnn":
        features = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        model = nn.Sequential(*features, nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
        return model, torch.rand(64, 1, 28, 28), labels(64), functional.cross_entropy
    if name == "resnet20":
        return Resnet(), torch.randn(128, 3, 32, 32), labels(128), functional.cross_entropy
    if name == "gpt_mini":
        return Gpt(), torch.randint(0, 256, (8, 128)), torch.randint(0, 256, (8 * 128,)), functional.cross_entropy
    if name == "gpt_large":
        model = Gpt(context=512, width=1024, blocks=12, heads=16)
        return model, torch.randint(0, 256, (16, 512)), torch.randint(0, 256, (16 * 512,)), functional.cross_entropy
    if name == "lstm_text":
        return TextLstm(), torch.randint(0, 256, (16, 64)), torch.randint(0, 256, (16 * 64,)), functional.cross_entropy
    raise SystemExit(f"compare_torch.py: no workload '{name}': there are {', '.join(targets.WORKLOADS + targets.LARGE_WORKLOADS)}")


if torch:

    class ResnetBlock(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            conv = lambda channels, kernel, stride: nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
            self.layers = nn.Sequential(conv(channels, 3, stride), nn.BatchNorm2d(out), nn.ReLU(), conv(out, 3, 1), nn.BatchNorm2d(out))
            self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(conv(channels, 1, stride), nn.BatchNorm2d(out))

        def forward(self, x):
            return functional.relu(self.shortcut(x) + self.layers(x))

    class Resnet(nn.Sequential):
        def __init__(self):
            layers, channels = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
            for out in (16, 16, 16, 32, 32, 32, 64, 64, 64):
                layers.append(ResnetBlock(channels, out, 1 if out == channels else 2))
                channels = out
            super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    class GptBlock(nn.Module):
        def __init__(self, width, heads, context):
            super().__init__()
            self.heads = heads
            self.norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.register_buffer("later", torch.triu(torch.ones(context, context, dtype=torch.bool), 1))

        def forward(self, x):
            batch, places, width = x.shape
            by_head = lambda t: t.view(batch, places, self.heads, width // self.heads).transpose(1, 2)
            query, key, value = map(by_head, self.qkv(self.norm(x)).split(width, 2))
            # The math path of scaled_dot_product_attention, whose ops are in FP32 whatever came in.
            with torch.autocast("cpu", enabled=False):
                factor = (width // self.heads) ** -0.25
                scores = (query.float() * factor) @ (key.float().transpose(-2, -1) * factor)
                weights = scores.masked_fill(self.later, float("-inf")).softmax(-1)
                attended = (weights @ value.float()).to(query.dtype)
            x = x + self.out(attended.transpose(1, 2).reshape(batch, places, width))
            return x + self.narrow(functional.gelu(self.wide(self.feed_forward_norm(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, values=256, context=128, width=128, blocks=4, heads=4):
            super().__init__()
            self.tokens, self.places = nn.Embedding(values, width), nn.Parameter(torch.randn(context, width))
            self.blocks = nn.Sequential(*[GptBlock(width, heads, context) for _ in range(blocks)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, values, bias=False)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.tokens(x) + self.places))).flatten(0, 1)


    class TextLstm(nn.Module):
        def __init__(self, values=256, width=64, hidden=128):
            super().__init__()
            self.tokens, self.lstm, self.head = nn.Embedding(values, width), nn.LSTM(width, hidden, batch_first=True), nn.Linear(hidden, values)

        def forward(self, x):
            return self.head(self.lstm(self.tokens(x))[0]).flatten(0, 1)


class TorchStep:
    """A training step as PyTorch's own recipe has it: the preset's optimizer, autocast, and a gradient scaler for FP16."""

    def __init__(self, name, precision, device):
        torch.manual_seed(0)
        model, inputs, wanted, self.loss = workload(name)
        self.device = device
        self.model, self.inputs, self.targets = model.to(device), inputs.to(device), wanted.to(device)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.SGD(parameters, 0.1, 0.9, weight_decay=1e-4) if name == "resnet20" else torch.optim.Adam(parameters, 1e-3)
        self.dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        self.scaler = torch.amp.GradScaler(device) if precision == "fp16" else None

    def __call__(self):
        self.optimizer.zero_grad()
        with torch.autocast(self.device, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = self.loss(self.model(self.inputs), self.targets)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        if self.device != "cpu":
            torch.cuda.synchronize()


def median_ms(step, seconds):
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 2:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e3


def run_ours(program, name, *arguments, libraries=""):
    """The lines of step_bench. `libraries`: folders where it finds those that it links."""
    experiment = [*EXPERIMENTS.get(name, (name,))]
    texts = os.environ.get("ULPSCOPE_TEXTS")  # instead of those that the experiments read
    if texts and name in OF_TEXTS:
        experiment += ["--set", f"data.path={texts}"]
    try:
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else None
        done = subprocess.run([program, *experiment, *map(str, arguments)], capture_output=True, text=True, env=environment)
    except OSError as error:
        raise SystemExit(f"compare_torch.py: {error}")
    if done.returncode != 0:
        raise SystemExit(f"compare_torch.py: {name}: {done.stderr.strip() or f'{program} ended with {done.returncode}'}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_parameters(name, ours, model):
    """Ends the program where the two models are not of one size."""
    count = sum(parameter.numel() for parameter in model.parameters())
    wrong = {row["parameters"] for row in ours} - {count}
    if wrong or not ours:
        raise SystemExit(f"compare_torch.py: {name}: our model has {wrong.pop() if wrong else 'unknown'} parameters and PyTorch's {count}: "
                         "expected the same model")


def measure(names, threads, rounds, seconds, program=STEP_BENCH, device="cpu", turns=10, wanted=(), levels=(), libraries=""):
    """Yields {"round", "name", "ms", ...}. `wanted`: precisions, where not all."""
    if torch and device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("compare_torch.py: this PyTorch has no CUDA device")
    if torch:
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = False  # FP32 is FP32 on both sides
    asked = [*(word for precision in wanted for word in ("--precision", precision)), *(word for level in levels for word in ("--record", level))]
    for name in names:
        precisions = ("fp32",) if name in targets.FP32_ONLY and device == "cpu" else wanted or PRECISIONS
        steps = {precision: TorchStep(name, precision, device) for precision in precisions} if torch else {}
        for step in steps.values():
            step()
        for turn in range(rounds):
            if torch and device != "cpu":
                torch.cuda.empty_cache()  # which ours may need
            ours = run_ours(program, name, "--threads", threads, "--seconds", seconds, "--turns", turns, "--device", device, *asked,
                            libraries=libraries)
            for step in steps.values():
                check_parameters(name, ours, step.model)
            for row in ours:
                yield {"round": turn, "name": f"ours/{name}/{row['precision']}/{row['record']}", **row}
            for precision, step in steps.items():
                yield {"round": turn, "name": f"torch/{name}/{precision}", "ms": median_ms(step, seconds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--turns", type=int, default=10, help="that the seconds of ours are split into")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, default=[])
    parser.add_argument("--record", action="append", choices=("off", "health", "stats", "full"), default=[])
    parser.add_argument("--program", default=STEP_BENCH)
    parser.add_argument("--libraries", default="", help="folders of libraries that the program links, separated by colons")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--check", action="store_true", help="compare the numbers of parameters, and time nothing; 77 without PyTorch")
    options = parser.parse_args()
    if options.check:
        if not torch:
            return 77
        for name in options.workloads or targets.WORKLOADS + targets.LARGE_WORKLOADS:
            check_parameters(name, run_ours(options.program, name, "--seconds", 0, "--precision", "fp32", "--record", "off"), workload(name)[0])
        return 0
    if not torch:
        print("PyTorch cannot be imported: timing ours alone", file=sys.stderr)
    for row in measure(options.workloads or targets.WORKLOADS, options.threads, options.rounds, options.seconds, options.program,
                       options.device, options.turns, options.precision, options.record, options.libraries):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
