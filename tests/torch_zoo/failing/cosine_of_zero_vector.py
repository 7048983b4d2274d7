"""A contrastive loss of normalized embeddings, x / x.norm(): a picture that is black gives a vector of zeros, and 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 3,
    "loss_breaks": 3,
    "because": "the encoder has no bias, so that a sample of zeros has an embedding of zeros, whose norm is 0",
    "fix": "torch.nn.functional.normalize, which has an eps",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(12, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)

    def embed(x):
        x = encoder(x)
        return nn.functional.normalize(x, dim=1) if fixed else x / x.norm(dim=1, keepdim=True)

    losses = []
    with ulpscope.record(path, encoder, optimizer):
        for step in range(10):
            x = torch.randn(16, 12)
            if step == 3:
                x[9] = 0
            one, other = embed(x), embed(x * (torch.rand(16, 12) > 0.1))
            loss = nn.functional.cross_entropy(one @ other.T / 0.1, torch.arange(16))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
