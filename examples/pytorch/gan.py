"""A GAN in FP16 under autocast: two models, two optimizers, one GradScaler: `python gan.py`.

The models are recorded together, and a step ends when both optimizers have stepped."""

import math

import torch
from torch import nn

import ulpscope


def real_points(count):
    """Points near a circle."""
    angle = 2 * math.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).to(device)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
scaler = torch.amp.GradScaler(device)
losses = []


def loss_of(points, are_real):
    logits = critic(points)
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, are_real))


models, optimizers = {"generator": generator, "critic": critic}, [critic_optimizer, generator_optimizer]
with ulpscope.record("gan.h5", models, optimizers, scaler, overwrite=True):
    for step in range(60):
        with torch.autocast(device, torch.float16):
            made = generator(torch.randn(64, 4, device=device))
            critic_loss = loss_of(real_points(64).to(device), 1.0) + loss_of(made.detach(), 0.0)
        critic_optimizer.zero_grad()
        scaler.scale(critic_loss).backward()
        scaler.step(critic_optimizer)

        with torch.autocast(device, torch.float16):
            generator_loss = loss_of(made, 1.0)
        generator_optimizer.zero_grad()
        scaler.scale(generator_loss).backward()
        scaler.step(generator_optimizer)
        scaler.update()
        losses.append(critic_loss.item() + generator_loss.item())

print(ulpscope.report("gan.h5"))
