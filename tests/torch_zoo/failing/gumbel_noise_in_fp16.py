"""Gumbel noise -log(-log(u)) of a gate, with u in FP16: in some steps one of them rounds to 1, and the scaler skips those."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "module": "gate",
    "op": "log",
    "step": 1,
    "steps": 3,
    "loss_breaks": 1,
    "says": ["log(0) = -Inf in 1 of 1,024 elements", "Keep the argument of log above 0"],
    "because": "a u above 1 - 2^-12 rounds to 1 in FP16, its logarithm is 0, the noise Inf, and the softmax of it NaN",
    "fix": "the noise in FP32, of a u that is clamped",
}


class Gate(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.logits, self.fixed = nn.Linear(16, 32), fixed

    def forward(self, x):
        logits = self.logits(x)
        u = torch.rand(logits.shape)
        u = u.clamp(1e-6, 1 - 1e-6) if self.fixed else u.half()
        return 32 * torch.softmax(logits - torch.log(-torch.log(u)), -1)


def train(path, fixed=False):
    torch.manual_seed(0)
    gate, head = Gate(fixed), nn.Linear(32, 4)
    model = nn.ModuleDict({"gate": gate, "head": head})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(25):
            x = torch.randn(32, 16)
            with torch.autocast("cpu", torch.float16):
                loss = functional.cross_entropy(head(gate(x)), x[:, :4].argmax(1))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
