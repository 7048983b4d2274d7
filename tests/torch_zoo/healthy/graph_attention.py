"""Attention over the edges of a graph: the largest score of a node begins at -Inf, and nodes without edges keep it."""

import torch
from torch import nn

import ulpscope


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.score = nn.Linear(8, 8), nn.Linear(16, 1)

    def forward(self, x, source, target):
        scores = nn.functional.leaky_relu(self.score(torch.cat([x[source], x[target]], 1)).squeeze(1), 0.2)
        largest = torch.full((x.shape[0],), float("-inf")).scatter_reduce(0, target, scores.detach(), "amax")
        weights = torch.exp(scores - largest[target])
        sums = torch.zeros(x.shape[0]).index_add(0, target, weights)
        weights = weights / sums[target]
        return x + torch.zeros_like(x).index_add(0, target, weights[:, None] * self.value(x)[source])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first, self.second, self.head = nn.Linear(4, 8), Layer(), Layer(), nn.Linear(8, 1)

    def forward(self, x, source, target):
        x = self.embed(x)
        return self.head(self.second(self.first(x, source, target), source, target))


def train(path):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            x = torch.randn(30, 4)
            source, target = torch.randint(0, 30, (60,)), torch.randint(0, 25, (60,))
            wanted = x[:, 0].index_add(0, target, x[source, 1])
            loss = nn.functional.mse_loss(model(x, source, target).squeeze(1), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
