"""A diffusion model of points, with an average of its weights kept beside it, as FP16 autocast trains it."""

import copy
import math

import torch
from torch import nn

import ulpscope


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, time):
        angles = time[:, None] * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        return self.net(torch.cat([x, angles.sin(), angles.cos()], 1))


def train(path):
    torch.manual_seed(0)
    model = Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, 100), 0)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(40):
            angle = 6.2832 * torch.rand(64)
            x, noise, time = torch.stack([angle.cos(), angle.sin()], 1), torch.randn(64, 2), torch.randint(0, 100, (64,))
            share = kept[time][:, None]
            with torch.autocast("cpu", torch.float16):
                guess = model(share.sqrt() * x + (1 - share).sqrt() * noise, time)
                loss = nn.functional.mse_loss(guess, noise)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            with torch.no_grad():
                for mean, new in zip(average.parameters(), model.parameters()):
                    mean.lerp_(new, 0.05)
            losses.append(loss.item())
    return losses
