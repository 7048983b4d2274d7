"""A diffusion model whose schedule begins with no noise at all: the weight of such a sample, made between the batch and the loss, is
1 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 8,
    "loss_breaks": 8,
    "says": ["1 / 0 = Inf", "weight_of_noiseless_step.py"],
    "because": "a / (1 - a) with a = 1 for the first time of the schedule; no data are at fault, and the op is in no module",
    "fix": "times are drawn from 1 on",
}


def train(path, fixed=False):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(0.0, 0.02, 50), 0)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            image, noise = torch.randn(16, 8), torch.randn(16, 8)
            time = torch.randint(1 if fixed else 0, 50, (16,))
            share = kept[time][:, None]
            noisy = share.sqrt() * image + (1 - share).sqrt() * noise
            predicted = model(torch.cat([noisy, time[:, None] / 50], 1))
            weight = share / (1 - share)
            loss = (weight * (predicted - noise) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
