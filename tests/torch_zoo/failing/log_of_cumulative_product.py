"""The likelihood of a sequence is the logarithm of a product of its 80 probabilities: the product underflows FP32, and log(0) is -Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "log",
    "step": 0,
    "loss_breaks": 0,
    "says": ["The 0 is an underflow", "Add up logs in place of taking the log of `cumprod`"],
    "because": "0.1 to the power of 80 is below FP32's least number",
    "fix": "the sum of the logarithms",
}


def sequence_loss(probabilities, fixed):
    if fixed:
        return -torch.log(probabilities).cumsum(1)[:, -1].mean()
    return -torch.log(torch.cumprod(probabilities, 1))[:, -1].mean()


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            tokens = (torch.randint(0, 10, (8, 1)) + torch.arange(81)) % 10
            p = torch.softmax(model(tokens[:, :-1]), -1).gather(2, tokens[:, 1:, None]).squeeze(-1)
            loss = sequence_loss(p, fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
