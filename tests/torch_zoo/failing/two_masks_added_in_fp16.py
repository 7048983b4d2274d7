"""Two masks of the least number of FP16 are added: where both hide a key their sum is -Inf, and of an empty sequence they hide all."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "add",
    "step": 0,
    "loss_breaks": 0,
    "says": ["Both operands are the least number of FP16, as masks are", "Join the masks before they are added"],
    "because": "a row of which every score is -Inf has a softmax of NaN",
    "fix": "the masks are joined by a logical or, and filled in once, with half of that number",
    "fixed": "ok",
}


class Attention(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.queries, self.keys, self.values, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.fixed = fixed

    def forward(self, x, is_padding, is_missing):
        least = torch.finfo(torch.float16).min
        if self.fixed:
            mask = torch.zeros(is_padding.shape, dtype=torch.float16).masked_fill(is_padding | is_missing, least / 2)
        else:
            padding, missing = (torch.zeros(each.shape, dtype=torch.float16).masked_fill(each, least) for each in (is_padding, is_missing))
            mask = padding + missing
        scores = self.queries(x) @ self.keys(x).transpose(1, 2) + mask[:, None]
        return self.head(torch.softmax(scores, dim=-1) @ self.values(x)).mean(1)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Attention(fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 6, 8)
    is_padding, is_missing = torch.zeros(16, 6, dtype=torch.bool), torch.zeros(16, 6, dtype=torch.bool)
    is_padding[:8, 4:] = True
    is_padding[3] = is_missing[3] = True  # an empty sequence
    labels = (x[:, 3, 0] > 0).long()
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x, is_padding, is_missing).float(), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
