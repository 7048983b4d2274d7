"""SimCLR's loss: each similarity with oneself is set to -Inf before the softmax."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, encoder, optimizer):
        for _ in range(25):
            x = torch.randn(16, 16)
            both = torch.cat([x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)])
            z = nn.functional.normalize(encoder(both), dim=1)
            similarities = z @ z.T / 0.2
            similarities.fill_diagonal_(float("-inf"))
            loss = nn.functional.cross_entropy(similarities, torch.arange(32).roll(16))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
