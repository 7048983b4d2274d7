"""A sum over the valid places of a sequence is divided in place by their number, an integer, which is 0 in one sequence of step 5."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "pool",
    "op": "div_",
    "step": 5,
    "loss_breaks": 5,
    "says": ["0 / 0", "Keep the divisor away from 0"],
    "because": "a sequence without a valid place has a sum of 0 and a count of 0",
    "fix": "a count of at least 1",
    "fixed": "ok",
}


class Pool(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, x, is_valid):
        count = is_valid.sum(1, keepdim=True)
        total = (x * is_valid[:, :, None]).sum(1)
        return total.div_(count.clamp(min=1) if self.fixed else count)


class Classifier(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.encoder, self.pool, self.head = nn.Linear(8, 16), Pool(fixed), nn.Linear(16, 3)

    def forward(self, x, is_valid):
        return self.head(self.pool(self.encoder(x).tanh(), is_valid))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Classifier(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(15):
            x = torch.randn(16, 9, 8)
            is_valid = torch.arange(9) < torch.randint(1, 10, (16, 1))
            if step == 5:
                is_valid[3] = False
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x, is_valid), x[:, 0, :3].argmax(1))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
