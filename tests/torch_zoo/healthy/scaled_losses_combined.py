"""What a GradScaler gives is divided by the number of micro-batches, or added up, before it goes back: in PyTorch all the same."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for step in range(60):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(2):
                x = torch.randn(64, 8)
                with torch.autocast("cpu", torch.float16):
                    first = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
                    second = model(x).float().square().mean() * 1e-3
                if step % 2:
                    ((scaler.scale(first) + scaler.scale(second)) / 2).backward()
                else:
                    (scaler.scale(first) / 2).backward()
                losses.append(first.item())
            scaler.step(optimizer)
            scaler.update()
    return losses
