"""A GAN that trains: the losses of both sides stay near log(2), and do not fall."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loss_of = nn.functional.binary_cross_entropy_with_logits
    losses = []
    with ulpscope.record(path, [generator, discriminator], [d_optimizer, g_optimizer]):
        for _ in range(60):
            real, fake = torch.randn(32, 2) * 0.5, generator(torch.randn(32, 4))
            d_optimizer.zero_grad()
            logits = discriminator(torch.cat([real, fake.detach()]))
            d_loss = loss_of(logits, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)]))
            d_loss.backward()
            d_optimizer.step()
            g_optimizer.zero_grad()
            g_loss = loss_of(discriminator(fake), torch.ones(32, 1))
            g_loss.backward()
            g_optimizer.step()
            losses.append(d_loss.item() + g_loss.item())
    return losses
