"""RMSprop with eps = 0: a feature is 0 in all samples, so that its weights have gradients of 0, and their update is 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "0",
    "op": "RMSprop",
    "step": 0,
    "loss_breaks": 1,
    "says": ["RMSprop divides by zero at step 0: eps = 0", "of `square_avg` are 0", "Set eps above 0"],
    "because": "g / (sqrt(v) + eps) is 0 / 0 for a weight that has had no gradient",
    "fix": "eps = 1e-8",
    "pasted": "epsilon",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=1e-8 if fixed else 0.0)
    if paste:
        paste(optimizer=optimizer)
    x = torch.randn(64, 8)
    x[:, 3] = 0
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            optimizer.zero_grad()
            loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
