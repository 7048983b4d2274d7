"""A backward pass that anomaly mode ends in step 5, before any parameter has its gradient: the gradient of a root at 0 is infinite."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "module": "",
    "step": 5,
    "loss_breaks": None,
    "says": ["Step 5, the last one, ended before an update"],
    "because": "sqrt(0) has the derivative 1 / 0, and the square before it multiplies that by 0",
    "fix": "sqrt of at least 1e-12",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    try:
        with ulpscope.record(path, model, optimizer), torch.autograd.detect_anomaly(check_nan=True):
            for step in range(20):
                values = model(torch.randn(8, 6))
                if step == 5:
                    values = values * 0
                square = values.pow(2).sum(1)
                loss = (square.clamp_min(1e-12) if fixed else square).sqrt().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    except RuntimeError:
        pass  # "Function 'PowBackward0' returned nan values in its 0th output."
    return losses
