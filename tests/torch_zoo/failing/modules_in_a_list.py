"""The blocks of a model are in a list of Python: neither parameters() nor the optimizer made of it has them, and the head learns alone."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "ok",
    "causes": [],
    "loss_breaks": None,
    "says": ["Gradients came to parameters in blocks, which no optimizer has", "nn.ModuleList"],
    "because": "modules in a list are not registered, so that no optimizer has their parameters",
    "fix": "nn.ModuleList",
    "fixed": "ok",
}


class Network(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        blocks = [nn.Linear(16, 24), nn.Linear(24, 24)]
        self.blocks = nn.ModuleList(blocks) if fixed else blocks
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x)


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
