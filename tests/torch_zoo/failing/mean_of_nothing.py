"""A loss of two groups of samples, each with its mean: in step 6 no sample is of the first group, and the mean of nothing is 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "op": "mean",
    "step": 6,
    "steps": 1,
    "loss_breaks": 6,
    "says": ["It is the mean of no elements, 0 / 0", "divide the sum by the number of elements where that is above 0"],
    "because": "the mean of an empty tensor is NaN; its gradient goes to no element, so that the weights stay finite",
    "fix": "the sum divided by the number of samples, which is at least 1",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(12):
            x = torch.randn(16, 4)
            error = (model(x).squeeze(1) - x[:, 1]) ** 2
            positive = x[:, 0] > (5 if step == 6 else 0)
            if fixed:
                first, second = (error[group].sum() / group.sum().clamp_min(1) for group in (positive, ~positive))
            else:
                first, second = error[positive].mean(), error[~positive].mean()
            loss = first + 0.1 * second
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
