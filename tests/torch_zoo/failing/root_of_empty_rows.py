"""A head that divides by the length of its features: nine batches of twenty hold a row of padding, whose length is 0, and the scaler
skips these steps without a word."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 1,
    "loss_breaks": None,
    "because": "the derivative of sqrt at 0 is Inf, in FP32 and at any loss scale; every finite loss hides it, and 9 of 20 updates are lost",
    "fix": "sqrt of the sum plus 1e-6",
}


def train(path, fixed=False):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    eps = 1e-6 if fixed else 0.0
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for step in range(20):
            x = torch.randn(32, 8)
            y = x[:, :4].argmax(1)
            if step % 2 == 1 and step < 19:
                x[7] = 0
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                features = model(x)
            length = torch.sqrt((features.float() ** 2).sum(1, keepdim=True) + eps)
            loss = nn.functional.cross_entropy(features.float() / (length + 0.1), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
