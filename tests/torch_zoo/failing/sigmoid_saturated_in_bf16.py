"""A classifier's last bias starts at the prior's logit of 8, in BF16: sigmoid rounds to 1 for all samples, and has no slope."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.none_applied"],
    "loss_breaks": None,
    "says": ["it is saturated, and its slope is 0 there", "Compute the loss from what the sigmoid reads"],
    "because": "1 - sigmoid(8) is 0.0003, less than half an ulp of BF16 below 1, and p (1 - p) is 0",
    "fix": "binary_cross_entropy_with_logits",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)]
    nn.init.constant_(layers[2].bias, 8.0)
    model = nn.Sequential(*layers) if fixed else nn.Sequential(*layers, nn.Sigmoid())
    model.bfloat16()
    loss_of = functional.binary_cross_entropy_with_logits if fixed else functional.binary_cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            x = torch.randn(64, 8)
            loss = loss_of(model(x.bfloat16()), (x[:, :1] > -1.3).bfloat16())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
