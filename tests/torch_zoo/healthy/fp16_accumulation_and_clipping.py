"""Four micro-batches a step under FP16 autocast, unscaled before the norm is clipped."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=10)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(25):
            total = 0.0
            for _ in range(4):
                x = torch.randn(8, 12)
                with torch.autocast("cpu", torch.float16):
                    loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1)) / 4
                scaler.scale(loss).backward()
                total += loss.item()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(total)
    return losses
