"""Outputs of shape [n, 1] less targets of shape [n]: PyTorch gives all pairs of them, and says nothing."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["data.targets_broadcast"],
    "op": "sub",
    "loss_breaks": None,
    "says": ["each of 96 outputs against 96 numbers of the data", "squeeze(-1)"],
    "because": "the least loss of all pairs is at the mean of the targets, whatever the input",
    "fix": "outputs and targets have one shape",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    x = torch.randn(96, 16)
    targets = 2 * x[:, 0] + x[:, 1] + 3
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(200):
            optimizer.zero_grad()
            outputs = model(x)
            loss = (((outputs.squeeze(-1) if fixed else outputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
