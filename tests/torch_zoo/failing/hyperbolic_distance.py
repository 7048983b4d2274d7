"""Hyperbolic embeddings of a tree: the distance is acosh(-<x, y>), and of a point to itself rounding makes -<x, y> less than 1."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "distance",
    "op": "acosh",
    "step": 3,
    "loss_breaks": 3,
    "says": ["acosh(0.99"],
    "because": "in step 3 the data have loops, edges from a node to itself",
    "fix": "the argument of acosh is clamped to 1 and a little more",
}


class Distance(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, u, v):
        product = (1 + u.pow(2).sum(-1)).sqrt() * (1 + v.pow(2).sum(-1)).sqrt() - (u * v).sum(-1)
        return torch.acosh(product.clamp(min=1 + 1e-6) if self.fixed else product)


class Tree(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.points, self.distance = nn.Embedding(64, 6), Distance(fixed)
        nn.init.normal_(self.points.weight, std=2.0)

    def forward(self, nodes, parents, others):
        x = self.points(nodes)
        near, far = self.distance(x, self.points(parents)), self.distance(x[:, None], self.points(others))
        return nn.functional.cross_entropy(-torch.cat((near[:, None], far), 1), torch.zeros(len(nodes), dtype=torch.long))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Tree(fixed)
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            nodes = torch.randint(1, 64, (48,))
            parents = nodes // 2
            if step == 3:
                parents[:12] = nodes[:12]
            others = (nodes[:, None] + torch.randint(1, 63, (48, 8))) % 64
            loss = model(nodes, parents, others)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
