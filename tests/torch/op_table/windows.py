"""Windows that slide over images: convolutions and pooling."""

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, either
from op_table.case import Row, Spec
from op_table.linear import gradient_of_moves, gradient_of_products, sums_of_products


def padding_meets(c):
    """Where padding is multiplied by what is not finite: PyTorch's 0 * Inf is NaN, ours no term, or oneDNN's (docs/ops.md)."""
    padding = [int(c.a.get(f"padding_{axis}", 0)) for axis in "xy"]
    if not any(padding) or not c.special:
        return False, [False] * len(c.x)
    around = functional.pad(torch.zeros(c.x[0].v.shape), [padding[0]] * 2 + [padding[1]] * 2, value=1.0)
    bad = lambda v: torch.from_numpy((~np.isfinite(v)).astype(np.float32))
    run = lambda x, w: c.row.function(x, w, **{**c.a, "padding_y": 0, "padding_x": 0})
    w = bad(c.x[1].v).requires_grad_()
    y = run(around, w)
    (reached,) = torch.autograd.grad(y, w, bad(c.g[0].v))
    return y.detach().numpy() > 0, [False, reached.numpy() > 0, False][:len(c.x)]


def convolution(c):
    (y,) = sums_of_products(c)
    free, c.free_gradients = padding_meets(c)
    return [Ball(y.v, y.e, either(y.free, free), True)]


def gradient_of_convolution(c):
    return [Ball(b.v, b.e, either(b.free, free), True) for b, free in zip(gradient_of_products(c), c.free_gradients)]


def draw_window(d, most=3):
    """Kernel, stride and padding by dimension: the op's attributes."""
    return {f"{name}_{axis}": value for axis in "yx"
            for name, value in (("kernel", d.between(1, most)), ("stride", d.between(1, 3)), ("padding", d.below(2)))}


def draw_conv2d(d):
    a = draw_window(d)
    x = (d.between(0 if d.chance(0.1) else 1, 3), d.between(1, 6), d.between(3, 8), d.between(3, 8))
    w = (d.between(1, 6), x[1], a.pop("kernel_y"), a.pop("kernel_x"))
    return [Spec(x), Spec(w), *([Spec(w[:1])] if d.chance(0.6) else [])], a


def torch_conv2d(x, w, b=None, *, stride_y, stride_x, padding_y, padding_x):
    return functional.conv2d(x, w, b, (int(stride_y), int(stride_x)), (int(padding_y), int(padding_x)))


def draw_max_pool2d(d):
    a = draw_window(d)
    for axis in "yx":
        a[f"padding_{axis}"] = min(a[f"padding_{axis}"], a[f"kernel_{axis}"] // 2)
    return [Spec((d.between(1, 3), d.between(1, 20), d.between(3, 8), d.between(3, 8)))], a


def torch_max_pool2d(x, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x):
    whole = lambda y, x: (int(y), int(x))
    return functional.max_pool2d(x, whole(kernel_y, kernel_x), whole(stride_y, stride_x), whole(padding_y, padding_x))


def max_pool2d_gradient(c):
    """A window with a NaN gives its gradient, as NaN, to the first one; PyTorch gives g to the last."""
    (part,) = gradient_of_moves(c)
    return [Ball(part.v, part.e, either(part.free, np.isnan(c.x[0].v)), True)]


def max_pool2d_nan(c):
    kernel, stride, padding = ([int(c.a[f"{what}_{axis}"]) for axis in "yx"] for what in ("kernel", "stride", "padding"))
    bad = np.pad(np.isnan(c.x[0].v), ((0, 0), (0, 0), *((p, p) for p in padding)))
    first = np.zeros_like(bad)
    for image, channel, y, x in np.ndindex(c.truth[0].shape if bad.any() else (0, 0, 0, 0)):
        window = (image, channel, slice(y * stride[0], y * stride[0] + kernel[0]), slice(x * stride[1], x * stride[1] + kernel[1]))
        if bad[window].any():
            first[window][np.unravel_index(np.argmax(bad[window]), bad[window].shape)] = True
    return [first[:, :, padding[0]:first.shape[2] - padding[0], padding[1]:first.shape[3] - padding[1]]]


WINDOWS = [
    Row("conv2d", torch_conv2d, draw_conv2d, convolution, gradient_of_convolution),
    Row("max_pool2d", torch_max_pool2d, draw_max_pool2d, gradient=max_pool2d_gradient, nan=max_pool2d_nan),
]
