"""LBFGS with a closure and a line search, on a parametrization with weight norm."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import ulpscope


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(3, 16)), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    x = torch.randn(64, 3)
    y = torch.sin(x.sum(1, keepdim=True))
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(8):

            def closure():
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
    return losses
