"""An MLP in FP32 by AdamW, with a warm-up that begins at a learning rate of 0 and a cosine behind it."""

import math

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / 5 if step < 5 else 0.5 * (1 + math.cos(math.pi * (step - 5) / 40)))
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            x = torch.randn(64, 8)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, 0] - x[:, 1] * x[:, 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return losses
