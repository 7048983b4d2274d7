"""Attention over padded sequences: in step 3 a sequence of length 0 has a mask of -Inf in its whole row, and its softmax is NaN."""

import math

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "attention",
    "op": "_softmax",
    "step": 3,
    "loss_breaks": 3,
    "because": "the softmax of scores that are all -Inf is 0 / 0",
    "fix": "a large negative number for -Inf",
    "pasted": "advice.leave_one_value",
}


class Attention(nn.Module):
    def __init__(self, width, masked, paste):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.masked, self.paste = masked, paste

    def forward(self, x, keep):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        if self.paste:
            scores = self.paste(x=scores, mask=~keep[:, None, :])["x"]
        else:
            scores = scores.masked_fill(~keep[:, None, :], self.masked)
        return scores.softmax(-1) @ self.v(x)


class Tagger(nn.Module):
    def __init__(self, masked, paste):
        super().__init__()
        self.embedding, self.attention, self.head = nn.Embedding(20, 16), Attention(16, masked, paste), nn.Linear(16, 4)

    def forward(self, tokens, keep):
        x = self.embedding(tokens)
        return self.head(x + self.attention(x, keep))


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = Tagger(-1e4 if fixed else float("-inf"), paste)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            tokens = torch.randint(0, 20, (8, 10))
            lengths = torch.randint(3, 11, (8,))
            if step == 3:
                lengths[5] = 0
            keep = torch.arange(10) < lengths[:, None]
            logits = model(tokens, keep)
            loss = nn.functional.cross_entropy(logits.reshape(-1, 4), (tokens % 4).reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses
