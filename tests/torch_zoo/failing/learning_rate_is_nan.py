"""A polynomial schedule by numpy, (1 - step / total)^0.9, whose total is that of a shorter run: behind it the base is negative, and
the learning rate NaN."""

import warnings

import numpy
import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "0",
    "op": "sgd_update",
    "step": 12,
    "loss_breaks": 13,
    "says": ["The learning rate of that update is NaN"],
    "because": "a negative number to the power of 0.9 is NaN in numpy, and all gradients are finite",
    "fix": "the base is 0 at least",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with ulpscope.record(path, model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(16):
            rest = numpy.float64(1 - step / 11)
            optimizer.param_groups[0]["lr"] = float(0.05 * numpy.power(max(rest, 0) if fixed else rest, 0.9))
            labels = torch.randint(0, 3, (16,))
            waves = torch.sin(torch.linspace(0, 6, 40)[None] * (1 + labels[:, None]))[:, None] + 0.1 * torch.randn(16, 1, 40)
            loss = nn.functional.cross_entropy(model(waves), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
