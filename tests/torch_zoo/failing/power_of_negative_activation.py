"""Generalized-mean pooling raises activations to the power of 2.5: the layer before it has no ReLU, and a negative one gives NaN."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "pow",
    "step": 0,
    "loss_breaks": 0,
    "says": [", 2.5) = NaN", "Keep the base of pow at 0 or above", "power_of_negative_activation.py"],
    "because": "a negative number to the power of 2.5 is no real number",
    "fix": "clamp_min(1e-3) before the power",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    features, head = nn.Linear(12, 24), nn.Linear(8, 3)
    model = nn.ModuleDict({"features": features, "head": head})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(8):
            x = torch.randn(32, 12)
            activations = features(x).view(32, 3, 8)
            if fixed:
                activations = activations.clamp_min(1e-3)
            pooled = activations.pow(2.5).mean(1) ** (1 / 2.5)
            loss = functional.cross_entropy(head(pooled), (x[:, 0] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
