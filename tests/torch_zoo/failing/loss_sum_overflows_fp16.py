"""A loss by hand that sums squared errors of a whole batch in FP16: the sum exceeds 65,504, in each step, while the
gradients are finite."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "sum",
    "step": 0,
    "loss_breaks": 0,
    "because": "the sum of 64 x 400 squares of about 4 is 100,000; the gradients of it are finite, so that training goes on unseen",
    "fix": "the sum in FP32",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 400))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(15):
            x = torch.randn(64, 16)
            y = (2 * x.repeat(1, 25)).half()
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                error = model(x) - y
                loss = (error.float() ** 2).sum() if fixed else (error * error).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
