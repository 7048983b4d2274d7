"""A classifier ends with a softmax, and cross_entropy takes another one of it: the loss hardly moves."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["model.probabilities_as_logits"],
    "module": "3",
    "op": "_softmax",
    "loss_breaks": None,
    "says": ["takes probabilities for logits", "cannot fall below log(1 + 9 / e) = 1.461"],
    "because": "a softmax of probabilities is nearly uniform, whatever these are",
    "fix": "no softmax in the model",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    layers = [nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10)]
    model = nn.Sequential(*layers) if fixed else nn.Sequential(*layers, nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-2)
    x = torch.randn(256, 20)
    labels = x[:, :10].argmax(1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(200):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
