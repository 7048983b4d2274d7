"""A gradient scaler that starts at 2^30 is made anew in each step: what it learns of an overflow goes with it, and no step is taken."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["scale.over_scaled"],
    "step": 0,
    "steps": 40,
    "loss_breaks": None,
    "says": ["It backs off, and is 2^30 again in the next step", "Make the scaler once, before the loop"],
    "because": "gradients times 2^30 overflow FP16 in each step, and the halved scale is thrown away with its scaler",
    "fix": "one scaler, made before the loop, that starts at 2^12",
    "pasted": "scale_initial",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if fixed:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    if paste:
        scaler = paste()["scaler"]
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(40):
            if not (fixed or paste):
                scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
            x = torch.randn(32, 8)
            with torch.autocast("cpu", torch.float16):
                loss = functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
