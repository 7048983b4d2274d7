"""A frozen backbone in BF16 under a head in FP32: most of the model has no gradient, and is not meant to."""

import torch
from torch import nn

import ulpscope


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()).to(torch.bfloat16).requires_grad_(False)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x.to(torch.bfloat16))
        return self.head(x.float())


def train(path):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(25):
            x = torch.randn(32, 16)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
