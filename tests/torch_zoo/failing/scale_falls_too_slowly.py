"""A gradient scaler that starts far too high, and whose backoff factor of 0.99 takes hundreds of steps to come down."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.gradients_overflow"],
    "step": 0,
    "loss_breaks": None,
    "because": "scaled by 2^32 the gradients of the logits exceed FP16's maximum in each step, so every step is skipped",
    "fix": "the scaler's own defaults, and a start at 2^12",
    "pasted": "scale_initial",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if fixed:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    else:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32, backoff_factor=0.99)
    if paste:
        scaler = paste()["scaler"]
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(30):
            x = torch.randn(32, 16)
            y = x[:, :4].argmax(1)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
