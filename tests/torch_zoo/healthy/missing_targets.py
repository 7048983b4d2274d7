"""Several targets a sample, of which a third is NaN, for not measured: the loss takes only the others."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    mix = torch.randn(8, 4)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            x = torch.randn(32, 8)
            y = torch.where(torch.rand(32, 4) < 0.33, float("nan"), x @ mix)
            measured = ~torch.isnan(y)
            loss = nn.functional.mse_loss(model(x)[measured], y[measured])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
