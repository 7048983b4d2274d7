#!/usr/bin/env python3
"""The test accuracy of the network of experiments/fashion_cnn.toml after one epoch in PyTorch, seed by seed, in FP32 on the CPU.

usage: fashion_accuracy.py [SEEDS]
What core's TrainerTest holds ours against. The files lie in $ULPSCOPE_DATA/fashion-mnist, or where the Debian package
dataset-fashion-mnist has them.
"""

import gzip
import os
import pathlib
import statistics
import sys

import numpy
import torch
from torch import nn

FOLDER = pathlib.Path(os.environ.get("ULPSCOPE_DATA", "/usr/share/datasets")) / "fashion-mnist"


def read(name, header):
    with gzip.open(FOLDER / f"{name}-ubyte.gz") as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


def images(name):
    return torch.tensor(read(f"{name}-images-idx3", 16).reshape(-1, 1, 28, 28) / 255.0, dtype=torch.float32)


def labels(name):
    return torch.tensor(read(f"{name}-labels-idx1", 8).astype(numpy.int64))


def accuracy(seed, train, test):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    inputs, targets = train
    for batch in torch.randperm(len(inputs)).split(64):
        loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = sum(
            int((model(some).argmax(1) == wanted).sum())
            for some, wanted in zip(test[0].split(500), test[1].split(500))
        )
    return right / len(test[0])


def main():
    torch.set_num_threads(1)  # which its bits depend on
    train, test = ((images(name), labels(name)) for name in ("train", "t10k"))
    found = []
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 6):
        found.append(accuracy(seed, train, test))
        print(f"seed {seed}: {found[-1]:.4f}", flush=True)
    if len(found) > 1:
        print(f"mean {statistics.mean(found):.4f}, standard deviation {statistics.stdev(found):.4f}")


if __name__ == "__main__":
    main()
