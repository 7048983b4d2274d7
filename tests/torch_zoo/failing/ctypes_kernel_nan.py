"""A kernel behind raw pointers, in the forward pass of an autograd.Function: sqrt(x + 4), where x is below -4."""

import ctypes
import math

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "1",
    "op": "Root",
    "step": 3,
    "loss_breaks": 3,
    "says": ["NaN came out of `Root` (", ", module 1), which cannot be looked into.", "The inputs that it was given were finite."],
    "because": "the kernel takes the root of a negative number, its input is finite, and no op of PyTorch wrote its output",
    "fix": "the kernel's argument is kept at 0 or above",
}


def root_kernel(pointer, result, count, least):
    """As a compiled kernel would: PyTorch sees none of it."""
    read, write = (ctypes.cast(each, ctypes.POINTER(ctypes.c_float)) for each in (pointer, result))
    for i in range(count):
        argument = max(read[i] + 4, least)
        write[i] = math.sqrt(argument) if argument >= 0 else math.nan


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, least):
        x = x.contiguous()
        result = torch.empty_like(x)
        root_kernel(x.data_ptr(), result.data_ptr(), x.numel(), least)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient / (2 * result.clamp_min(0.01)), None


class Rooted(nn.Module):
    def __init__(self, least):
        super().__init__()
        self.least = least

    def forward(self, x):
        return Root.apply(x, self.least)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), Rooted(0.0 if fixed else -math.inf), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            x = torch.randn(16, 6)
            if step == 3:
                x[0] *= 20
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1).tanh())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
