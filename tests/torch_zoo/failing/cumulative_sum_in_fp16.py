"""Times of frames are a running sum of their durations, which is kept in FP16: it passes 65,504 long before the last frame."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "durations",
    "op": "cumsum",
    "step": 0,
    "loss_breaks": 0,
    "says": ["a sum, or a part of it, exceeded 65,504 (FP16 max)", "Cast what `cumsum` reads to FP32"],
    "because": "1,500 durations of about 65 sum to 97,000, and the sine of Inf is NaN",
    "fix": "the sum in FP32",
}


class Durations(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.net, self.fixed = nn.Linear(8, 1), fixed

    def forward(self, x):
        durations = 90 * nn.functional.softplus(self.net(x)).squeeze(-1)
        return torch.cumsum(durations if self.fixed else durations.half(), 1)


class Positions(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.durations, self.head = Durations(fixed), nn.Linear(10, 1)

    def forward(self, x):
        times = self.durations(x) / 100
        return self.head(torch.cat([torch.stack([torch.sin(times), torch.cos(times)], -1).float(), x], -1))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Positions(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(12):
            x = torch.randn(4, 1500, 8)
            loss = (model(x) - x[..., :1]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
