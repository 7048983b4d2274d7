"""A model in BF16, with Adam's states in BF16, whose targets calm down: its gradients fall, and the second moments do not."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["updates.lost", "precision.second_moment_stuck"],
    "loss_breaks": None,
    "says": ["Adam's second moments in BF16 cannot fall: 0.999 v rounds back to v"],
    "because": "0.999 v lies less than half an ulp of BF16 below v, so that the second moments keep the size that the first gradients gave them",
    "fix": "FP32 weights, and so FP32 states, under BF16 autocast",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    if not fixed:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(1200):
            x = torch.randn(32, 8)
            targets = x[:, :1] + (30 if step < 50 else 0.1) * torch.randn(32, 1)
            with torch.autocast("cpu", torch.bfloat16, enabled=fixed):
                y = model(x if fixed else x.bfloat16())
            loss = nn.functional.mse_loss(y.float(), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
