"""A GAN under FP16 autocast with its losses written out: the discriminator becomes sure, its sigmoid underflows, and the generator's
loss is -log(0). The scaler skips the generator from then on, and lowers the scale of both."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "log",
    "says": ["log(0)"],
    "step": 23,
    "loss_breaks": 23,
    "because": "the sigmoid of a logit below -17.3 rounds to 0 in FP16",
    "fix": "binary_cross_entropy_with_logits",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
    discriminator = nn.Sequential(nn.Linear(8, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4)
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loss_of(logits, is_real):
        if fixed:
            return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(is_real)))
        p = torch.sigmoid(logits)
        return -torch.log(p if is_real else 1 - p).mean()

    losses = []
    models = {"generator": generator, "discriminator": discriminator}
    with ulpscope.record(path, models, [d_optimizer, g_optimizer], scaler):
        for _ in range(40):
            real = 10 + torch.randn(32, 8)
            d_optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                fake = generator(torch.randn(32, 4))
                d_loss = loss_of(discriminator(real), True) + loss_of(discriminator(fake.detach()), False)
            scaler.scale(d_loss).backward()
            scaler.step(d_optimizer)
            g_optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                g_loss = loss_of(discriminator(fake), True)
            scaler.scale(g_loss).backward()
            scaler.step(g_optimizer)
            scaler.update()
            losses.append(d_loss.item() + g_loss.item())
    return losses
