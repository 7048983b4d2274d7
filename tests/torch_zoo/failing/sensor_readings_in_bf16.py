"""A loader hands readings of a sensor to the model in BF16: they are around 300 kelvin and differ by a tenth, and BF16 has steps of 2 there."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["precision.values_merged"],
    "op": "input",
    "step": 0,
    "loss_breaks": None,
    "says": ["One is element 1 of a sample", "Subtract the mean"],
    "because": "all readings are 300 in BF16, and the target is the reading",
    "fix": "readings less their mean",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            x = torch.randn(64, 3)
            y = x[:, 1:2].clone()
            if not fixed:
                x[:, 1] = 300 + 0.1 * x[:, 1]
            readings = x.bfloat16()
            loss = functional.mse_loss(model(readings.float()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
