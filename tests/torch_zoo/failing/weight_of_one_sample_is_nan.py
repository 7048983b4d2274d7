"""Each sample has a weight in the loss: one of them is NaN in the data."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["data.nonfinite"],
    "step": 2,
    "loss_breaks": 2,
    "says": ["sample 37 of TensorDataset"],
    "because": "the weight of sample 37 is NaN, and so is the mean of the batch",
    "fix": "a weight of 0",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    y, weight = (x[:, :1] > 0).float(), torch.ones(64, 1)
    weight[37] = 0 if fixed else float("nan")
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(2):
            for samples, labels, weights in DataLoader(TensorDataset(x, y, weight), 16):
                loss = nn.functional.binary_cross_entropy_with_logits(model(samples), labels, weight=weights)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses
