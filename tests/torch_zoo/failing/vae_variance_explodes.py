"""A variational autoencoder in FP16 autocast: exp(log-variance) of an encoder that nobody bounds exceeds 65,504."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "exp",
    "step": 0,
    "loss_breaks": 0,
    "because": "the log-variance is FP16, the output of a linear layer, and above 11.09 for some of the samples",
    "fix": "log-variances clamped to [-10, 5]",
}


class VAE(nn.Module):
    def __init__(self, clamped):
        super().__init__()
        self.encoder, self.decoder, self.clamped = nn.Linear(20, 8), nn.Linear(4, 20), clamped

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        if self.clamped:
            log_variance = log_variance.clamp(-10, 5)
        variance = torch.exp(log_variance)
        z = mean + variance.sqrt() * torch.randn_like(mean)
        divergence = 0.5 * (variance + mean**2 - 1 - log_variance).sum(1).mean()
        return self.decoder(z), divergence


def train(path, fixed=False):
    torch.manual_seed(0)
    model = VAE(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(12):
            x = 25 * torch.randn(32, 1) * torch.ones(20)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                made, divergence = model(x)
                loss = nn.functional.mse_loss(made, x) + 0.01 * divergence
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
