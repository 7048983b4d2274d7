"""A region with autocast switched off, meant to be FP32, that forgets to cast what comes in: its squares are FP16."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "module": "norm",
    "op": "pow",
    "step": 0,
    "loss_breaks": None,
    "because": "the activations are FP16 from the layer before, and squares of numbers above 256 are Inf there; 1 / sqrt(Inf) is 0, so that all "
    "that the norm gives is 0, the loss is finite, and nothing but the bias of the head learns",
    "fix": "x.float() at the beginning of the region",
}


class RMSNorm(nn.Module):
    def __init__(self, width, casts):
        super().__init__()
        self.weight, self.casts = nn.Parameter(torch.ones(width)), casts

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            if self.casts:
                x = x.float()
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Model(nn.Module):
    def __init__(self, casts):
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(8, 32), RMSNorm(32, casts), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(15):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(500 * x), x[:, :4].argmax(1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
