"""torch.where keeps the NaN of sqrt(x) for x < 0 out of the loss, and not out of the gradients: 0 * NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "compress",
    "op": "sqrt",
    "step": 0,
    "loss_breaks": 1,
    "because": "the square root of a negative number is NaN; where leaves it out of the loss of step 0, and its gradient is 0 * NaN",
    "fix": "where on the input of sqrt as well",
}


class Compress(nn.Module):
    """The root of positive values, and a line below."""

    def __init__(self, safe):
        super().__init__()
        self.safe = safe

    def forward(self, x):
        inside = torch.where(x > 0, x, 1.0) if self.safe else x
        return torch.where(x > 0, torch.sqrt(inside + 1e-6), 0.1 * x)


class Model(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.first, self.compress, self.second = nn.Linear(5, 16), Compress(safe), nn.Linear(16, 1)

    def forward(self, x):
        return self.second(self.compress(self.first(x)))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            x = torch.randn(16, 5)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.abs().sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
