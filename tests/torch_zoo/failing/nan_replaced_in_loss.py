"""The logarithm of a loss that may be negative is NaN, and nan_to_num makes it 0: the loss is 0 from the first step on, and nothing trains."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.none_applied"],
    "loss_breaks": None,
    "says": ["The `log` itself held NaN or Inf there, which the op that reads it replaces", "ulpscope nan"],
    "because": "nan_to_num has a gradient of 0 where it replaces a value",
    "fix": "log1p of the error, which is not negative",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(64, 8)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            optimizer.zero_grad()
            error = (model(x).squeeze(1) - x[:, 0]).square().mean()
            loss = torch.nan_to_num(torch.log1p(error) if fixed else torch.log(error - 20))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
