"""Weights from a file that another program wrote in FP16: one of them overflowed there, and is Inf from the start."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "2",
    "step": 0,
    "loss_breaks": 0,
    "because": "2.weight[1, 5] is Inf before the first step",
    "fix": "the weights as they were before the conversion",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    state = model.state_dict()
    state["2.weight"][1, 5] = 7e4
    if not fixed:
        state = {name: value.half().float() for name, value in state.items()}
    else:
        state["2.weight"][1, 5] = 0.07
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(8):
            x = torch.randn(16, 8)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
