"""A sensor that gave nothing is written as NaN into its row of the batch, and the model reads it."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["data.nonfinite"],
    "step": 3,
    "loss_breaks": 3,
    "says": ["NaN in the data"],
    "because": "the row is filled with NaN on purpose, and nothing takes it out of the loss",
    "fix": "0 in its place",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(8):
            x = torch.randn(16, 8)
            y = x.sum(1, keepdim=True)
            if step == 3:
                x[5].fill_(0.0 if fixed else float("nan"))
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
