"""A head under weight_norm whose rows are zero at the start, as heads often begin: the kernel divides each by its norm, 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "2.parametrizations.weight.0",
    "op": "_weight_norm_interface",
    "step": 0,
    "loss_breaks": 0,
    "says": ["2 of 4 norms are 0", "no row that has its own norm may be all zeros"],
    "because": "the direction of a row of zeros is not defined, whatever the row's own norm is set to",
    "fix": "rows that are not all zeros",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    head = nn.Linear(32, 4)
    if not fixed:
        nn.init.zeros_(head.weight[:2])
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.utils.parametrizations.weight_norm(head))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            x = torch.randn(32, 8)
            loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
