"""model.half() with Adam: 1e-8 is 0 in FP16, as is (1 - beta2) g^2 of a small gradient, and the first update is m / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "step": 0,
    "loss_breaks": 1,
    "because": "the states are FP16 as the weights are: 0.001 g^2 rounds to 0 for |g| up to 0.0054, and so does eps = 1e-8",
    "fix": "FP32 weights under FP16 autocast, with a scaler",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3))
    if not fixed:
        model.half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=fixed)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(12):
            x = torch.randn(64, 12)
            y = x[:, :3].argmax(1)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=fixed):
                logits = model(x if fixed else x.half())
            loss = nn.functional.cross_entropy(logits.float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
