"""A linear model by SGD with momentum at a learning rate that is too large: the loss grows and grows."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["run.diverged"],
    "loss_breaks": None,
    "because": "the loss grows by orders of magnitude in each step, from the first ones on, and nothing overflows",
    "fix": "a learning rate of 0.01",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if fixed else 2.0, momentum=0.9)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            x = torch.randn(64, 20)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, 0] * x[:, 1] + x[:, 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
