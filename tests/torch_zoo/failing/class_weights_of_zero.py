"""Class weights of which one is 0, for a class to be left out: a batch of that class alone divides by a sum of weights of 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "step": 5,
    "loss_breaks": 5,
    "because": "the mean is weighted: 0 / 0, and the gradient of that is NaN, unlike that of ignored labels",
    "fix": "a weight of 1e-4",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    weights = torch.tensor([1e-4 if fixed else 0.0, 1.0, 2.0])
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(12):
            x = torch.randn(8, 6)
            y = torch.zeros(8).long() if step == 5 else x[:, :3].argmax(1)
            loss = nn.functional.cross_entropy(model(x), y, weight=weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
