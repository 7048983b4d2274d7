#!/usr/bin/env python3
"""What recording PyTorch costs: CPU time of a step, all threads, over that of the same loop without recording, in alternation.

usage: torch_recording.py [--adapter callbacks|dispatch] [--level LEVEL] [--every N] [--threads N] [--rounds N] [--only MODEL]
                          [--peers] [--json FILE]

A round is some steps bare, as many recorded into a trace on disk after two to warm up, and as many bare again; the ratio, to the mean of
the bare ones before and after, is the median over rounds. With
--peers, what others show of the same training is measured in the same rounds (torch_peers.py).
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import torch
import torch_peers
import ulpscope
from torch import nn
from torch.nn import functional


class Transformer(nn.Module):
    def __init__(self, width=128, blocks=2, words=256):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.body(self.embedding(x))).flatten(0, 1)


def mlp():
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
    return model, torch.randn(64, 64), torch.randint(0, 10, (64,)), 40


def convnet():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10))
    return model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)), 20


def transformer():
    return Transformer(), torch.randint(0, 256, (16, 64)), torch.randint(0, 256, (16 * 64,)), 5


MODELS = {"mlp": mlp, "convnet": convnet, "transformer": transformer}


def recorded(folder, model, optimizer, arguments):
    """A block in which training is recorded; the trace is gone behind it."""

    @contextlib.contextmanager
    def block(_):
        path = os.path.join(folder, "trace.h5")
        with ulpscope.record(path, model, optimizer, adapter=arguments.adapter, level=arguments.level, every=arguments.every):
            yield None
        os.unlink(path)

    return block


def measure(name, arguments):
    """Milliseconds of a bare step, and by name of a block how many times as long one takes in it."""
    torch.manual_seed(1)
    model, x, y, steps = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(count, after=None):
        begin = time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if after is not None:
                after()
        return (time.process_time() - begin) / count

    train(3)
    bare_times = []
    with tempfile.TemporaryDirectory() as folder:
        blocks = {"recorded": recorded(folder, model, optimizer, arguments), **(torch_peers.PEERS if arguments.peers else {})}
        ratios = {each: [] for each in blocks}
        for _ in range(arguments.rounds):
            for each, block in blocks.items():
                before = train(steps)
                with block(model) as after:
                    train(2, after)
                    seconds = train(steps, after)
                bare = (before + train(steps)) / 2  # the smaller of two would make one that is measured once look slower
                bare_times.append(bare)
                ratios[each].append(seconds / bare)
    return statistics.median(bare_times) * 1e3, {each: statistics.median(found) for each, found in ratios.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", choices=("callbacks", "dispatch"), default="callbacks")
    parser.add_argument("--level", default="stats")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=tuple(MODELS))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {}
    for name in MODELS:
        if arguments.only in (None, name):
            bare, ratios = measure(name, arguments)
            results[name] = {"bare_milliseconds": bare, "ratios": ratios}
            print(f"{name}: {ratios['recorded']:.2f} of a step of {bare:.2f} ms")
            for peer, ratio in ratios.items():
                if peer != "recorded":
                    print(f"  {peer}: {ratio:.2f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
