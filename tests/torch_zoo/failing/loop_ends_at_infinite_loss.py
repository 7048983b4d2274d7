"""A loop that ends where its loss is not finite, before backward(): no gradient and no weight ever holds an infinity."""

import math

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "log",
    "step": 12,
    "loss_breaks": 12,
    "says": ["The loss was NaN or Inf in 1 of 13 steps"],
    "because": "a row of zeros has the logarithm -Inf, which the loss reads",
    "fix": "an argument of log that is at least 1e-6",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Softplus())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(20):
            x = torch.rand(32, 6)
            gate = torch.ones(32, 1)
            if step >= 12:
                gate[3] = 0
            total = model(x) * gate
            loss = (torch.log(total.clamp_min(1e-6) if fixed else total) - torch.log(x.sum(1, keepdim=True))).abs().mean()
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return losses
