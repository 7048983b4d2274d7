"""CTC with zero_infinity: an utterance that is too short for its text has a loss of Inf inside, and 0 outside."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(-1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CTCLoss(zero_infinity=True)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(12):
            frames = torch.randint(5, 21, (6,))
            text = torch.randint(1, 10, (6, 6))
            logs = model(torch.randn(20, 6, 12))
            loss = criterion(logs, text, frames, torch.full((6,), 6))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
