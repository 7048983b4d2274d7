"""Scores of forbidden actions are to be -Inf: the mask of those is multiplied by a tensor of -Inf, and 0 * -Inf is NaN for all others."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "mul",
    "step": 0,
    "loss_breaks": 0,
    "says": ["0 * -Inf = NaN", "select the other elements instead"],
    "because": "the product of an action that is allowed, 0, and -Inf is NaN",
    "fix": "masked_fill",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    gate = nn.Linear(6, 4)
    optimizer = torch.optim.Adam([*policy.parameters(), *gate.parameters()], lr=1e-2)
    losses = []
    with ulpscope.record(path, {"policy": policy, "gate": gate}, optimizer):
        for _ in range(8):
            state = torch.randn(16, 6)
            closed = torch.relu(gate(state) - 1.5)
            scores = policy(state)
            penalty = torch.full((1, 4), float("-inf"))
            scores = scores.masked_fill(closed > 0, -1e9) if fixed else scores + closed * penalty
            loss = nn.functional.cross_entropy(scores, scores.argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
