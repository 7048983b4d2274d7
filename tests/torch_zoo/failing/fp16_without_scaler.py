"""A model that removes noise from quiet recordings under FP16 autocast, with no gradient scaler: the mean over all samples makes every
gradient too small for FP16."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.gradients_vanish"],
    "step": 0,
    "loss_breaks": None,
    "because": "the gradient of a mean over 8 x 8,192 samples is 2 e / 65,536 for errors e of 1e-3 or less, all of it below 2^-25, which FP16 "
    "rounds to zero where the last layer's gradient is cast",
    "fix": "scaler.scale(loss).backward() with a GradScaler",
}


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 16, 16, 8), nn.ConvTranspose1d(16, 1, 8, 8)

    def forward(self, x):
        return self.decode(torch.relu(self.encode(x)))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Denoiser()
    nn.init.zeros_(model.encode.bias)
    nn.init.zeros_(model.decode.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-14)  # far below gradients as small as these
    scaler = torch.amp.GradScaler("cpu", enabled=fixed)
    time = torch.arange(8200) / 8000
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(20):
            pitch = 100 + 400 * torch.rand(8, 1, 1)
            clean = 2e-4 * torch.sin(6.2832 * pitch * time)
            noisy = clean + 1e-4 * torch.randn(8, 1, 8200)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.mse_loss(model(noisy), clean[..., :8192])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
