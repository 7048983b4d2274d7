"""A norm as its formula in FP16: squares of features of some hundreds are Inf, 1 / Inf is 0, and nothing gets through."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "1",
    "step": 0,
    "loss_breaks": None,
    "because": "features of the size 1,000 have squares above 65,504, and what is divided by the root of their mean is 0",
    "fix": "the norm in FP32",
    "pasted": "precision_of_modules",
}


class Norm(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.wide = wide

    def forward(self, x):
        if self.wide:
            x = x.float()
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), Norm(fixed), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    if paste:
        paste(model=model)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(30):
            x = 2000 * torch.randn(32, 8)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
