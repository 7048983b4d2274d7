"""A variational autoencoder in BF16 autocast, with its divergence in FP32."""

import torch
from torch import nn

import ulpscope


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        mean, log_variance = self.encoder(x).float().chunk(2, 1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1).mean()
        return self.decoder(z), divergence


def train(path):
    torch.manual_seed(0)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    mix = torch.randn(3, 20)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            x = torch.sigmoid(torch.randn(32, 3) @ mix)
            with torch.autocast("cpu", torch.bfloat16):
                logits, divergence = model(x)
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), x, reduction="none").sum(1).mean() + 0.1 * divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
