"""Epochs through a DataLoader, an evaluation after each, and the loss of it as a metric."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import ulpscope


def train(path):
    torch.manual_seed(0)
    x = torch.randn(240, 6)
    training, held_out = random_split(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), [200, 40])
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer) as run:
        for _ in range(4):
            model.train()
            for inputs, labels in DataLoader(training, batch_size=25, shuffle=True):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            model.eval()
            with torch.no_grad():
                total = sum(nn.functional.cross_entropy(model(a), b, reduction="sum").item() for a, b in DataLoader(held_out, 20))
            run.metric("val_loss", total / len(held_out), kind="evaluation_loss")
    return losses
