"""Weights of classes are samples per count of the class: one class has no sample, and label smoothing gives it a share of each loss."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "loss_weight",
    "step": 0,
    "loss_breaks": 0,
    "says": ["Inf came in with `loss_weight`, step 0, 1 of 5 elements"],
    "because": "the weight of the class without samples is 300 / (5 * 0), and smoothing makes 0.02 of each label that class",
    "fix": "a weight of 0 for a class without samples",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    x = torch.randn(300, 10)
    y = x[:, :4].argmax(1)
    counts = torch.bincount(y, minlength=5)
    weights = len(y) / (5 * counts)
    if fixed:
        weights[counts == 0] = 0
    loss_of = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.1)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            batch = torch.randint(0, 300, (32,))
            loss = loss_of(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
