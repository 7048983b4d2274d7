"""Adam with eps = 0: rows of an embedding that no batch has read yet have gradients and moments of 0, and their update is 0 / 0."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "0",
    "op": "adam_update",
    "step": 0,
    "loss_breaks": 1,
    "says": ["Adam divides by zero", "Set Adam's eps above 0"],
    "because": "m / (sqrt(v) + eps) is 0 / 0 for a weight that has had no gradient",
    "fix": "eps = 1e-8",
    "pasted": "epsilon",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(200, 8), nn.Flatten(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2, eps=1e-8 if fixed else 0.0)
    if paste:
        paste(optimizer=optimizer)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            tokens = torch.randint(0, 200, (32, 4))
            loss = functional.mse_loss(model(tokens), tokens[:, :1] / 100 - 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
