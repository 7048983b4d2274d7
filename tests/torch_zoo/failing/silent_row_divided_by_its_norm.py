"""Features of a data loader are divided by their length before the model: one row of 64 is silent, and 0 / 0 is NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "div",
    "step": 1,
    "loss_breaks": 1,
    "says": ["element 0 of sample 37 of TensorDataset", "Keep the divisor away from 0"],
    "because": "row i of the quotient is of sample i of the batch, and the batch of step 1 has sample 37 as its sixth",
    "fix": "lengths of at least 1e-6",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    features = torch.rand(64, 6)
    features[37] = 0
    data = torch.utils.data.TensorDataset(features, features[:, :4].argmax(1))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            for x, y in loader:
                length = x.norm(dim=1, keepdim=True)
                loss = nn.functional.cross_entropy(model(x / (length.clamp_min(1e-6) if fixed else length)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses
