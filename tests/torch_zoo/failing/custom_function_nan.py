"""A custom autograd.Function, x / |x| * log(1 + |x|), whose backward divides by |x| and meets a 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "squash",
    "op": "div",
    "step": 3,
    "loss_breaks": 4,
    "because": "sign(x) is written x / |x| in the backward pass, 0 / 0 for the zeros of a sample of zeros",
    "fix": "torch.sign",
}


class SymmetricLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, safe):
        ctx.save_for_backward(x)
        ctx.safe = safe
        return x.sign() * torch.log1p(x.abs())

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        sign = x.sign() if ctx.safe else x / x.abs()
        return gradient * (sign * x.sign()).clamp_min(1.0 if ctx.safe else float("-inf")) / (1 + x.abs()), None


class Squash(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.safe = safe

    def forward(self, x):
        return SymmetricLog.apply(x, self.safe)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("first", nn.Linear(6, 16, bias=False))
    model.add_module("squash", Squash(fixed))
    model.add_module("second", nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            x = torch.randn(16, 6)
            if step == 3:
                x[0] = 0
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
