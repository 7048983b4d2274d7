"""A language model that leaves out a batch whose loss is NaN, as all of its labels are ignored."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(24, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 24))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(20):
            tokens = torch.randint(0, 24, (4, 9))
            labels = tokens.roll(-1, 1)
            labels[:, : 9 if step % 7 == 4 else 4] = -100
            loss = nn.functional.cross_entropy(model(tokens).view(-1, 24), labels.view(-1))
            if not torch.isfinite(loss):
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
