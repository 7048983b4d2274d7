"""Gradients of 16 micro-batches are added up, and no loss is divided by 16: each update is 16 times as long as it was without."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["run.diverged"],
    "loss_breaks": None,
    "says": ["undivided micro-batches, now 16"],
    "because": "with each loss divided by 16 the same loop at the same learning rate learns",
    "fix": "loss / 16",
    "pasted": "loss_factor",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            optimizer.zero_grad()
            for _ in range(16):
                x = torch.randn(32, 8)
                loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
                losses.append(loss.item())
                if paste:
                    loss = paste(loss=loss)["loss"]
                elif fixed:
                    loss = loss / 16
                loss.backward()
            optimizer.step()
    return losses
