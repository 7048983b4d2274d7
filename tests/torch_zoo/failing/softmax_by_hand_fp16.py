"""Attention weights by exp and a sum in a model in FP16: exp of a score above 11.09 is Inf, and Inf / Inf is NaN."""

import math

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "pool",
    "op": "exp",
    "step": 0,
    "loss_breaks": 0,
    "because": "scores above 11.09 = log(65,504) have no exponential in FP16",
    "fix": "subtract the largest score first, as torch.softmax does",
    "pasted": "advice.subtract_largest",
    "says": ["On CUDA autocast computes `exp` in FP32"],
}


class Pool(nn.Module):
    def __init__(self, width, stable, paste):
        super().__init__()
        self.score, self.stable, self.paste = nn.Linear(width, 1), stable, paste

    def forward(self, x):
        scores = self.score(x)
        if self.stable:
            scores = scores - scores.amax(1, keepdim=True)
        weights = self.paste(x=scores, dim=1)["x"] if self.paste else torch.exp(scores)
        return (x * weights / weights.sum(1, keepdim=True)).sum(1)


class Model(nn.Module):
    def __init__(self, stable, paste):
        super().__init__()
        self.embed, self.pool, self.head = nn.Linear(8, 32), Pool(32, stable, paste), nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.pool(self.embed(x) * math.sqrt(32)))


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = Model(fixed, paste)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(15):
            x = 8 * torch.randn(8, 12, 8)
            y = x.mean(1)[:, :3].argmax(1)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
