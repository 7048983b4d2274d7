"""optimizer.zero_grad() is forgotten: gradients of all batches so far add up, and SGD swings further and further."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.gradients_kept"],
    "step": 2,
    "loss_breaks": None,
    "says": ["optimizer.zero_grad()"],
    "because": "nothing sets the gradients to zero, so that each step takes the sum of all gradients",
    "fix": "optimizer.zero_grad() in the loop",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    slopes = torch.randn(10)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(80):
            x = torch.randn(64, 10)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x @ slopes)
            if fixed:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
