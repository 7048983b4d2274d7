"""A triplet loss with Euclidean distances written out: in step 4 a positive is its anchor itself, and sqrt'(0) is Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 4,
    "loss_breaks": 5,
    "says": ["distance_at_zero.py:22"],
    "because": "the backward of sqrt divides by 2 * sqrt(0), and Inf * 0 is NaN in the gradient of the difference",
    "fix": "sqrt of the sum plus 1e-12",
}


def distance(a, b, eps):
    return torch.sqrt(((a - b) ** 2).sum(1) + eps)


def train(path, fixed=False):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    eps = 1e-12 if fixed else 0.0
    losses = []
    with ulpscope.record(path, encoder, optimizer):
        for step in range(12):
            anchor = torch.randn(16, 10)
            positive = anchor + 0.1 * torch.randn(16, 10)
            if step == 4:
                positive[3] = anchor[3]
            negative = torch.randn(16, 10)
            a, p, n = encoder(anchor), encoder(positive), encoder(negative)
            loss = torch.relu(distance(a, p, eps) - distance(a, n, eps) + 1.0).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
