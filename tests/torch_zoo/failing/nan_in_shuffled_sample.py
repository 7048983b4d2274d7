"""One cell of one sample of 2,000 is NaN; the loader shuffles, and has workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope

BAD = 1234
TRUTH = {
    "verdict": "broken",
    "causes": ["data.nonfinite"],
    "step": 14,
    "loss_breaks": 14,
    "says": ["element 5 of sample 1234 of TensorDataset, step 14"],
    "because": "sample 1234 has NaN in feature 5, and the order that seed 0 gives has it in batch 14",
    "fix": "torch.nan_to_num on the features",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    features = torch.randn(2000, 7)
    targets = features[:, :1] - 2 * features[:, 1:2]
    features[BAD, 5] = float("nan")
    if fixed:
        features = torch.nan_to_num(features)
    loader = DataLoader(TensorDataset(features, targets), batch_size=100, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.float()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
