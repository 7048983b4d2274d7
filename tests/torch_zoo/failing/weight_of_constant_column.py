"""Errors of a regression are divided by the variance of their column, which is kept on the module as a plain tensor: that of a constant
column is 0, and its weight Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "constant",
    "step": 0,
    "loss_breaks": 0,
    "says": ["Inf came in with `constant`, step 0, 1 of 4 elements"],
    "because": "the weight is no row of any batch, so that no sample is to be fixed or dropped",
    "fix": "a weight of 1 for a column without variance",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 8), torch.randn(64, 4)
    targets[:, 2] = 1.0
    model = nn.Linear(8, 4)
    model.weights = 1 / targets.var(0)
    if fixed:
        model.weights[targets.var(0) == 0] = 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(32):
            rows = torch.arange(step * 8, step * 8 + 8) % 64
            loss = ((model(inputs[rows]) - targets[rows]) ** 2 * model.weights).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
