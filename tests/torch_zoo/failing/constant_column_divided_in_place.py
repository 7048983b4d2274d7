"""Features standardized in place, once, before training: one is the same in all samples, and 0 / 0 is NaN."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div_",
    "step": 0,
    "loss_breaks": 0,
    "says": ["0 / 0 = NaN"],
    "because": "the deviation of the constant column is 0, and so is what is left of it without its mean",
    "fix": "clamp_min(1e-6)",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    x = torch.randn(96, 12)
    x[:, 5] = 3
    y = (x[:, 0] > x[:, 1]).long()
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        deviation = x.std(0)
        x -= x.mean(0)
        x /= deviation.clamp_min(1e-6) if fixed else deviation
        for step in range(9):
            batch = slice(step % 3 * 32, step % 3 * 32 + 32)
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
