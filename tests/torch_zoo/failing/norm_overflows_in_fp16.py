"""A model in FP16 with clip_grad_norm_: the gradients are finite, their norm is FP16 too and Inf, and clipping multiplies by
1 / Inf = 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "0",
    "op": "_foreach_norm",
    "step": 0,
    "loss_breaks": None,
    "says": ["a result exceeded 65,504 (FP16 max)", "No weight changed"],
    "because": "a gradient of 16,384 elements of some thousand has a norm above 65,504",
    "fix": "the norm is computed in FP32",
}


def clip(parameters):
    norm = torch.linalg.vector_norm(torch.stack([each.grad.float().norm() for each in parameters]))
    for each in parameters:
        each.grad.copy_(each.grad.float() * (1.0 / norm).clamp(max=1))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            x = torch.randn(64, 64).abs() * 20
            loss = 16 * nn.functional.mse_loss(model(x.half()).float(), x.mean(1, keepdim=True) * 5)
            optimizer.zero_grad()
            loss.backward()
            if fixed:
                clip(list(model.parameters()))
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses
