"""A schedule gives the weight of a part of the loss, and it is NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "mul",
    "step": 0,
    "loss_breaks": 0,
    "says": ["The number that it takes from the program is NaN", "as a schedule of a weight"],
    "because": "the weight of the penalty is a number of Python that is NaN",
    "fix": "a schedule without a division by zero",
    "fixed": "ok",
}


def weight_of(step, fixed):
    return step / 100 if fixed else float("inf") * 0.0


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 8)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(12):
            optimizer.zero_grad()
            outputs = model(x).squeeze(1)
            loss = (outputs - x[:, 0]).square().mean() + weight_of(step, fixed) * outputs.abs().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
