"""AdamW with a learning rate of 100 in place of 1e-2: the first update throws the weights away."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["run.diverged"],
    "loss_breaks": None,
    "says": ["Lower the learning rate (lr, now 100)"],
    "because": "an update of Adam is as long as the learning rate, whatever the gradient",
    "fix": "lr = 1e-2",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2 if fixed else 100.0)
    x = torch.randn(96, 16)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            optimizer.zero_grad()
            loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
