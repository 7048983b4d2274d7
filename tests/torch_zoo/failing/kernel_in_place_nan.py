"""A kernel behind a raw pointer writes over what a linear layer made: it divides rows by their norm, and one row is 0."""

import numpy
import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "1",
    "op": "unrecorded_memory",
    "step": 3,
    "loss_breaks": 3,
    "says": ["NaN came out of `unrecorded_memory` (", ", module 1), which cannot be looked into."],
    "because": "numpy divides 0 by 0 in memory that the linear layer left finite; the ReLU that reads it makes no NaN",
    "fix": "an eps in the divisor",
}


class Normalized(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        rows = x.detach().numpy()
        with numpy.errstate(invalid="ignore"):
            rows /= numpy.linalg.norm(rows, axis=1, keepdims=True) + self.eps
        return torch.relu(x)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16, bias=False), Normalized(1e-6 if fixed else 0.0), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            x = torch.randn(16, 6)
            if step == 3:
                x[0] = 0
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1).tanh())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
