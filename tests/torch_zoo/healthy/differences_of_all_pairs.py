"""An energy score of a sample that a model draws: the loss has all pairs of outputs and data on purpose, and outputs that are spread
as the data are."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(200):
            optimizer.zero_grad()
            data = 2 * torch.randn(64) + 1
            drawn = model(torch.randn(64, 4))
            to_data = (drawn - data).abs().mean()
            among_drawn = (drawn - drawn.squeeze(-1)).abs().mean()
            loss = to_data - among_drawn / 2
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
