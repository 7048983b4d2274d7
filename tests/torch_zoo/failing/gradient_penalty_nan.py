"""A Wasserstein critic with a gradient penalty whose norm is written out: a sample for which all units of the critic are dead has a
gradient of 0, and the second backward divides by its root."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 3,
    "loss_breaks": 4,
    "because": "the derivative of sqrt at 0 is Inf, and times the derivative of 0^2, which is 0, it is NaN; the losses are finite until the "
    "weights are NaN",
    "fix": "sqrt of the sum plus 1e-12",
}


def train(path, fixed=False):
    torch.manual_seed(36)
    critic = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    eps = 1e-12 if fixed else 0.0
    losses = []
    with ulpscope.record(path, critic, optimizer):
        for _ in range(10):
            real, fake = torch.randn(64, 2) + 1, torch.randn(64, 2)
            share = torch.rand(64, 1)
            between = (share * real + (1 - share) * fake).requires_grad_()
            gradient = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
            penalty = ((torch.sqrt((gradient**2).sum(1) + eps) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
