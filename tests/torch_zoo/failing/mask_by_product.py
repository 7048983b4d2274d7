"""Log-probabilities of padded steps are multiplied by a mask of zeros: -Inf * 0 is NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "mul",
    "step": 0,
    "says": ["0 * Inf", "`masked_fill` fills in the Inf"],
    "loss_breaks": 0,
    "because": "the log-probability of a forbidden token is -Inf, and a mask that multiplies does not take it away",
    "fix": "torch.where for the product",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 24), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forbidden = torch.zeros(16, dtype=torch.bool)
    forbidden[0] = True  # the padding
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            tokens = torch.randint(1, 16, (8, 10))
            keep = torch.arange(10) < torch.randint(4, 9, (8, 1))
            tokens = tokens * keep
            logits = model(tokens).masked_fill(forbidden, float("-inf"))
            logs = logits.log_softmax(-1).gather(2, tokens[..., None]).squeeze(2)
            picked = torch.where(keep, logs, 0.0) if fixed else logs * keep
            loss = -picked.sum() / keep.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
