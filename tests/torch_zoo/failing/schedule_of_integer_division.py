"""The warm-up's factor is step // 100 where step / 100 was meant: the learning rate is 0 in all of the first 100 steps."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.none_applied"],
    "loss_breaks": None,
    "says": ["The learning rate is 0 in every step", "Change the schedule"],
    "because": "an integer division rounds the factor down to 0, and no weight changes",
    "fix": "(step + 1) / 100",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    factor = (lambda step: min(1.0, (step + 1) / 100)) if fixed else (lambda step: min(1.0, step // 100))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            x = torch.randn(64, 8)
            loss = functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return losses
