"""A regressor ends in LayerNorm(1): the norm of a single value is 0 for any input, and only its bias learns."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["model.norm_of_one"],
    "module": "3",
    "op": "native_layer_norm",
    "loss_breaks": None,
    "says": ["normalizes each value by itself", "Remove that norm, or normalize over a dimension with several values"],
    "because": "a value without its own mean is 0, so that predictions do not depend on the input, and no gradient comes below the norm",
    "fix": "no norm after the last layer",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)]
    model = nn.Sequential(*layers) if fixed else nn.Sequential(*layers, nn.LayerNorm(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            x = torch.randn(64, 8)
            loss = functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
