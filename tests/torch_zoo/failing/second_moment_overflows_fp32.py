"""One batch is 10^22 times too large: Adam's second moments become infinite in FP32, and its updates are 0 from then on."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "adam_update",
    "step": 8,
    "loss_breaks": None,
    "says": ["Adam's second moment", "exceeds 3.403e+38 (FP32 max)", "Clip the gradients"],
    "because": "the square of a gradient of 10^21 is more than FP32 has",
    "fix": "gradients are clipped",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(40):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            error = model(x).squeeze(1) - x[:, 0]
            loss = (error * (1e22 if step == 8 else 1)).abs().mean()
            loss.backward()
            if fixed:
                torch.nn.utils.clip_grad_value_(model.parameters(), 10.0)
            optimizer.step()
            losses.append(loss.item())
    return losses
