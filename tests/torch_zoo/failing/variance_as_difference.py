"""A norm by hand: E[x^2] - E[x]^2 of values with a large mean cancels to a negative variance, whose root is NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["precision.cancellation"],
    "module": "norm",
    "op": "sub",
    "step": 0,
    "loss_breaks": 0,
    "because": "FP32 keeps 7 digits of E[x^2] = 4e6, so that a variance of 0.01 is rounding noise of either sign",
    "fix": "the mean of the squared differences from the mean",
}


class Norm(nn.Module):
    def __init__(self, width, stable):
        super().__init__()
        self.weight, self.bias, self.stable = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), stable

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        if self.stable:
            variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        else:
            variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class Model(nn.Module):
    def __init__(self, stable):
        super().__init__()
        self.norm, self.body = Norm(24, stable), nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.body(self.norm(x))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            deviation = torch.randn(32, 24)
            x = 2000 + 0.1 * deviation  # kelvin, from a sensor
            loss = nn.functional.mse_loss(model(x).squeeze(1), deviation[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
