"""A classifier in BF16 with an average of its weights beside it, a copy of the model in BF16: what is added in a step is below half an
ulp of the average, which stays at the weights of the start."""

import copy

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["updates.average_lost"],
    "loss_breaks": None,
    "says": ["running averages of weights in BF16"],
    "because": "0.001 of a weight is less than half an ulp of an average that is about as large, and a + da == a",
    "fix": "the average in FP32",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(torch.bfloat16)
    average = copy.deepcopy(model)
    if fixed:
        average = average.float()
    inputs = torch.randn(256, 16)
    targets = (inputs @ torch.randn(16, 4)).argmax(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(30):
            rows = torch.arange(step * 64, step * 64 + 64) % 256
            loss = nn.functional.cross_entropy(model(inputs[rows].to(torch.bfloat16)).float(), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters()):
                    mean.mul_(0.999).add_(weight, alpha=0.001)
            losses.append(loss.item())
    return losses
