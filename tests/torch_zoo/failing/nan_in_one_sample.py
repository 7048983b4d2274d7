"""A table of features in which one cell of one row is NaN, read through a DataLoader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["data.nonfinite"],
    "step": 5,
    "loss_breaks": 5,
    "says": ["element 3 of sample 87 of TensorDataset, step 5"],
    "because": "row 87 of 128 has NaN in one feature; batches of 16 in order have it in step 5",
    "fix": "torch.nan_to_num on the features",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    features = torch.randn(128, 7)
    targets = features[:, :1] - 2 * features[:, 1:2]
    features[87, 3] = float("nan")
    if fixed:
        features = torch.nan_to_num(features)
    model = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for x, y in DataLoader(TensorDataset(features, targets), batch_size=16):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
