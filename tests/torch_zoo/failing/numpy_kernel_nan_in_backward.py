"""An autograd.Function written in numpy: its backward pass divides x by |x|, and meets a 0."""

import numpy
import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "1",
    "op": "AbsoluteBackward",
    "step": 3,
    "loss_breaks": 4,
    "says": ["module 1, backward), which cannot be looked into."],
    "because": "the sign of x is written x / |x| in numpy, 0 / 0 for a sample of zeros; the op that reads the gradient makes none",
    "fix": "numpy.sign",
}


class Absolute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, safe):
        ctx.save_for_backward(x)
        ctx.safe = safe
        return torch.from_numpy(numpy.abs(x.detach().numpy()))

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].numpy()
        with numpy.errstate(invalid="ignore"):
            sign = numpy.sign(x) if ctx.safe else x / numpy.abs(x)
        return torch.from_numpy(gradient.numpy() * sign), None


class Folded(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.safe = safe

    def forward(self, x):
        return Absolute.apply(x, self.safe)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16, bias=False), Folded(fixed), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            x = torch.randn(16, 6)
            if step == 3:
                x[0] = 0
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1).abs())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
