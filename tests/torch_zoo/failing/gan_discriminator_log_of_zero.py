"""A GAN with its losses written out: the discriminator becomes sure, its sigmoid is exactly 1, and log(1 - 1) is -Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "log",
    "loss_breaks": 0,
    "because": "a logit above 17 has a sigmoid of 1 in FP32",
    "fix": "binary_cross_entropy_with_logits",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
    discriminator = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.1)

    def loss_of(logits, is_real):
        if fixed:
            return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(is_real)))
        p = torch.sigmoid(logits)
        return -torch.log(p if is_real else 1 - p).mean()

    losses = []
    models = {"generator": generator, "discriminator": discriminator}
    with ulpscope.record(path, models, [d_optimizer, g_optimizer]):
        for _ in range(25):
            real = 10 + torch.randn(32, 8)
            fake = generator(torch.randn(32, 4))
            d_optimizer.zero_grad()
            d_loss = loss_of(discriminator(real), True) + loss_of(discriminator(fake.detach()), False)
            d_loss.backward()
            d_optimizer.step()
            g_optimizer.zero_grad()
            g_loss = loss_of(discriminator(fake), True)
            g_loss.backward()
            g_optimizer.step()
            losses.append(d_loss.item() + g_loss.item())
    return losses
