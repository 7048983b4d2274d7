"""A Dice loss without smoothing on masks of which one is empty, where the prediction is rounded to nothing too: 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 4,
    "steps": 1,
    "loss_breaks": 4,
    "because": "a relu at the end gives a picture of zeros the prediction 0, so that both sums of the ratio are 0; the backward of relu hands "
    "nothing on where its output is 0, so that the weights stay finite",
    "fix": "1 added to both sums",
}


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.relu(torch.tanh(self.net(x)))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Segment()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    smooth = 1.0 if fixed else 0.0
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(12):
            x = torch.randn(4, 1, 10, 10)
            if step == 4:
                x[1] = 0
            mask = (x > 0.5).float()
            prediction = model(x)
            both = (prediction * mask).sum((1, 2, 3))
            loss = (1 - (2 * both + smooth) / (prediction.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + smooth)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
