"""torch.where keeps the NaN of log(x) for x < 0 out of the loss, and not out of the gradients: 0 * Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "compress",
    "op": "div",
    "step": 2,
    "loss_breaks": 3,
    "because": "log'(0) is 1 / 0 = Inf, and where hands it a gradient of 0: NaN, though the loss of step 2 is finite",
    "fix": "where on the input of log as well",
}


class Compress(nn.Module):
    """log for positive values, and 0 else."""

    def __init__(self, safe):
        super().__init__()
        self.safe = safe

    def forward(self, x):
        inside = torch.where(x > 0, x, 1.0) if self.safe else x
        return torch.where(x > 0, torch.log(inside), 0.0)


class Model(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.first, self.compress, self.second = nn.Linear(5, 16, bias=False), Compress(safe), nn.Linear(16, 1)

    def forward(self, x):
        return self.second(self.compress(torch.relu(self.first(x)) + 0.01 * (x[:, :1] != 0)))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            x = torch.randn(16, 5)
            if step == 2:
                x[7] = 0  # a sample with nothing in it
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.abs().sum(1).log1p())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
