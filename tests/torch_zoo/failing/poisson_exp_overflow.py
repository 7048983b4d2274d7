"""Poisson regression on a feature that nobody scaled: exp of a prediction above 88.7 is Inf in FP32."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "exp",
    "loss_breaks": 0,
    "step": 0,
    "because": "a year of 2,000 times a weight of 0.2 is a prediction of hundreds, whose exponential no FP32 number holds",
    "fix": "standardize the features",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            x = torch.stack([torch.randn(64), 1980 + 40 * torch.rand(64), torch.rand(64)], 1)
            counts = torch.poisson(torch.exp(0.5 * x[:, 0]))
            if fixed:
                x = (x - torch.tensor([0.0, 2000, 0.5])) / torch.tensor([1.0, 11.5, 0.29])
            rate = model(x).squeeze(1)
            loss = (torch.exp(rate) - counts * rate).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
