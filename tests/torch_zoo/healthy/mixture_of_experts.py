"""Two of four experts for each token: the others' gates are -Inf before the softmax, and an expert may get no token."""

import torch
from torch import nn

import ulpscope


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4))

    def forward(self, x):
        gates = self.gate(x)
        kept = torch.full_like(gates, float("-inf")).scatter(1, gates.topk(2).indices, 0.0)
        weights = (gates + kept).softmax(1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (weights[:, number] > 0).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, number, None])
        return out


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Mixture(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(25):
            x = torch.randn(32, 8)
            loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
