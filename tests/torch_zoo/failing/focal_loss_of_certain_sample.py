"""A focal loss with gamma 0.5 on a detector's head that begins at a prior of 0.01: once p rounds to 1, the gradient of (1 - p) ** 0.5
is Inf. The head's first updates are longer than its weights, as they are in healthy runs, and the losses are falling."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "pow",
    "step": 6,
    "loss_breaks": 7,
    "says": ["focal_loss_of_certain_sample.py:38", "Keep the base of pow away from 0"],
    "because": "x ** 0.5 has no finite derivative at 0, and a sample of which the model is certain has 1 - p = 0",
    "fix": "the base is at least 1e-6",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    targets = (inputs @ torch.randn(16, 1) > 1.0).float()[:, 0]
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 1))
    nn.init.normal_(model[2].weight, std=0.01)
    nn.init.constant_(model[2].bias, -4.6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    least = 1e-6 if fixed else 0.0
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(40):
            rows = torch.arange(step * 32, step * 32 + 32) % 512
            ce = nn.functional.binary_cross_entropy_with_logits(model(inputs[rows])[:, 0], targets[rows], reduction="none")
            base = (1 - torch.exp(-ce)).clamp_min(least)
            loss = (base**0.5 * ce).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return losses
