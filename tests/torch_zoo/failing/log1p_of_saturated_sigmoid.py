"""Binary cross entropy by hand, with log1p(-p) for the negatives: of a sure positive sigmoid gives exactly 1, and log1p(-1) is -Inf."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "log1p",
    "step": 6,
    "loss_breaks": 6,
    "says": ["Keep the argument of log1p above -1", "log1p(-sigmoid(x)) is logsigmoid(-x)"],
    "because": "sigmoid rounds to 1 for logits above 17, and -Inf times 1 - events, which is 0, is NaN",
    "fix": "binary_cross_entropy_with_logits",
}


def survival_loss(logits, events, fixed):
    if fixed:
        return functional.binary_cross_entropy_with_logits(logits, events)
    p = torch.sigmoid(logits)
    return -(events * torch.log(p) + (1 - events) * torch.log1p(-p)).mean()


def train(path, fixed=False):
    torch.manual_seed(0)
    x = 3 * torch.randn(512, 4)
    y = (x[:, :1] > 0).float()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            batch = torch.randint(0, 512, (64,))
            loss = survival_loss(model(x[batch]), y[batch], fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
