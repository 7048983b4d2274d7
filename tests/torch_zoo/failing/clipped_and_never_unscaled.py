"""The same slip with Adam and a norm clipped to 1, which hides it: clipping takes the loss scale out, until a batch overflows in
FP16, and no scaler skips its step."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.still_scaled"],
    "step": 0,
    "loss_breaks": 6,
    "says": ["gradients of the scaled loss that nothing had unscaled"],
    "because": "the gradients of one batch are Inf at a loss scale of 65,536, and optimizer.step() applies them",
    "fix": "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer), which skips that step",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15 if fixed else 2.0**16)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for step in range(15):
            x = torch.randn(32, 16) * (20 if step == 6 else 1)
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.mse_loss(model(x).float(), x[:, :1] * 3)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if fixed:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if fixed:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            losses.append(loss.item())
    return losses
