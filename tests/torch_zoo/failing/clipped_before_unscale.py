"""clip_grad_norm_ without scaler.unscale_(optimizer): the norm of scaled gradients is clipped to 1, and unscaling makes it 2^-16."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.clipped_while_scaled"],
    "loss_breaks": None,
    "because": "gradients of norm 2^16 are clipped to 1 and divided by 2^16, so that SGD's updates are 65,536 times too small",
    "fix": "scaler.unscale_(optimizer) before clip_grad_norm_",
    "pasted": "advice.unscale_first",
}


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(60):
            x = torch.randn(32, 10)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            scaler.scale(loss).backward()
            if fixed:
                scaler.unscale_(optimizer)
            if paste:
                paste(model=model, optimizer=optimizer, scaler=scaler)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
