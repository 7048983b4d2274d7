"""Gradients of 512 micro-batches are added up in BF16, which has 8 bits: from some micro-batch on the sum takes no more."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["precision.sum_stagnates"],
    "step": 0,
    "says": ["sums of gradients in BF16 lost 10% or more", "`bias`"],
    "loss_breaks": None,
    "because": "a sum of BF16 numbers no longer grows where a term is below half an ulp of it, after 256 terms of one size: the gradient of the "
    "bias is -1 for each micro-batch and -512 for all, and -256 in BF16",
    "fix": "FP32 weights, and so FP32 gradients, under BF16 autocast",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    if not fixed:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(512):
                x = torch.randn(4, 4)
                with torch.autocast("cpu", torch.bfloat16, enabled=fixed):
                    y = model(x if fixed else x.bfloat16())
                loss = nn.functional.l1_loss(y.float().squeeze(1), 100 + x[:, 0])
                loss.backward()
                total += loss.item()
            optimizer.step()
            losses.append(total / 512)
    return losses
