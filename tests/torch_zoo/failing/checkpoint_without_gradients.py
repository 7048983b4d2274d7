"""The first block of a model is a checkpoint in its reentrant form, and its input is data without gradients: the block gets none."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ulpscope

TRUTH = {
    "verdict": "ok",
    "causes": [],
    "loss_breaks": None,
    "says": ["No gradient came to first.0.weight and first.0.bias in any step", "use_reentrant=True"],
    "because": "the reentrant form gives gradients only where an input of the checkpoint has one",
    "fix": "use_reentrant=False",
    "fixed": "ok",
}


class Network(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 24), nn.GELU())
        self.second = nn.Sequential(nn.Linear(24, 24), nn.GELU())
        self.head, self.fixed = nn.Linear(24, 3), fixed

    def forward(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of it too, once among all that a program prints
            x = checkpoint(self.first, x, use_reentrant=not self.fixed)
        return self.head(self.second(x))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Network(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    x = torch.randn(96, 16)
    labels = x[:, :3].argmax(1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
