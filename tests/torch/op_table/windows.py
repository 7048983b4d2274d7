"""Windows that slide over images: convolutions and pooling."""

import functools
import math

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, accumulated, either
from op_table.case import Row, Spec
from op_table.linear import finite_magnitude, gradient_of_moves, gradient_of_products, pull, sums_of_products


def whole(attributes, name, axes):
    return [int(attributes[f"{name}_{axis}"]) for axis in axes]


def axes_of(x):
    return "yx"[4 - len(x.shape):]


# -- convolutions


def draw_windows(d, axes):
    """Stride, padding and dilation by dimension, groups, and the kernel and an extent that it fits into."""
    a, kernel, extents = {"groups": d.choice([1, 1, 2, 3])}, [], []
    for axis in axes:
        size, dilation, padding = d.between(1, 3), d.between(1, 2), d.below(2)
        a |= {f"stride_{axis}": d.between(1, 3), f"padding_{axis}": padding, f"dilation_{axis}": dilation}
        kernel.append(size)
        extents.append(d.between(max(1, dilation * (size - 1) + 1 - 2 * padding), 8))
    return a, kernel, extents


def draw_convolution(axes, transposed=False):
    def draw(d):
        a, kernel, extents = draw_windows(d, axes)
        groups = a["groups"]
        channels, filters = groups * d.between(1, 3), groups * d.between(1, 3)
        x, w = (d.between(0 if d.chance(0.1) else 1, 3), channels, *extents), (filters, channels // groups, *kernel)
        if transposed:
            w = (channels, filters // groups, *kernel)
            for axis, size, extent in zip(axes, kernel, extents):
                if (extent - 1) * a[f"stride_{axis}"] + a[f"dilation_{axis}"] * (size - 1) < 2:
                    a[f"padding_{axis}"] = 0
                a[f"output_padding_{axis}"] = d.below(a[f"stride_{axis}"])
        return [Spec(x), Spec(w), *([Spec((filters,))] if d.chance(0.6) else [])], a
    return draw


def torch_convolution(x, w, b=None, *, groups, **a):
    function = functional.conv2d if x.dim() == 4 else functional.conv1d
    return function(x, w, b, *(whole(a, name, axes_of(x)) for name in ("stride", "padding", "dilation")), int(groups))


def torch_transposed(x, w, b=None, *, groups, **a):
    stride, padding, output_padding, dilation = (whole(a, name, "yx") for name in ("stride", "padding", "output_padding", "dilation"))
    return functional.conv_transpose2d(x, w, b, stride, padding, output_padding, int(groups), dilation)


def padding_meets(c, image, small):
    """Where the padding of the image is multiplied by what is not finite: PyTorch's 0 * Inf is NaN, ours no term, or oneDNN's
    (docs/ops.md). Of the products with the weight, and of the weight's gradient."""
    padding = whole(c.a, "padding", axes_of(image))
    if not any(padding) or not c.special:
        return False, False
    around = functional.pad(torch.zeros(image.shape), [p for p in reversed(padding) for _ in range(2)], value=1.0)
    bad = lambda v: torch.from_numpy((~np.isfinite(v)).astype(np.float32))
    w = bad(c.x[1].v).requires_grad_()
    y = torch_convolution(around, w, **{name: 0 if name.startswith("padding") else value for name, value in c.a.items()})
    (reached,) = torch.autograd.grad(y, w, bad(small))
    return y.detach().numpy() > 0, reached.numpy() > 0


def freed(b, free):
    return Ball(b.v, b.e, either(b.free, free), True)


def convolution(c):
    (y,) = sums_of_products(c)
    free, c.free_weight = padding_meets(c, c.x[0].v, c.g[0].v)
    return [freed(y, free)]


def convolution_gradient(c):
    x, w, *bias = gradient_of_products(c)
    return [x, freed(w, c.free_weight), *bias]


def transposed_gradient(c):
    x, w, *bias = gradient_of_products(c)
    free, free_weight = padding_meets(c, c.g[0].v, c.x[0].v)
    return [freed(x, free), freed(w, free_weight), *bias]


# -- pooling


def draw_image(d):
    return [Spec((d.between(1, 3), d.between(1, 20), d.between(3, 8), d.between(3, 8)))]


def draw_pool(d, **more):
    a = {f"{name}_{axis}": value for axis in "yx" for name, value in (("kernel", d.between(1, 3)), ("stride", d.between(1, 3)))}
    a |= {f"padding_{axis}": d.below(a[f"kernel_{axis}"] // 2 + 1) for axis in "yx"}
    return draw_image(d), a | {"ceil_mode": d.below(2)} | more


def draw_adaptive(d):
    return draw_image(d), {"height": d.between(1, 9), "width": d.between(1, 9)}


def pooled(function):
    return lambda x, **a: function(x, *(whole(a, name, "yx") for name in ("kernel", "stride", "padding")), ceil_mode=bool(a["ceil_mode"]))


def torch_average(x, count_include_pad, **a):
    return pooled(functools.partial(functional.avg_pool2d, count_include_pad=bool(count_include_pad)))(x, **a)


def adapted(function):
    return lambda x, height, width: function(x, (int(height), int(width)))


def windows(c):
    """Of each dimension: (begin, end) of each window in the padded extent, and the padding."""
    for axis, extent, places in zip("yx", c.x[0].v.shape[2:], c.truth[0].shape[2:]):
        if "kernel_y" in c.a:
            kernel, stride, padding = (whole(c.a, name, axis)[0] for name in ("kernel", "stride", "padding"))
            yield [(i * stride, i * stride + kernel) for i in range(places)], padding
        else:
            yield [(i * extent // places, -(-(i + 1) * extent // places)) for i in range(places)], 0


def average_roundings(c):
    """The places of the largest window, and the windows that a place may be in; the division is one more."""
    spans = [spans for spans, _ in windows(c)]
    places = math.prod(max(end - begin for begin, end in axis) for axis in spans)
    overlaps = math.prod(max(sum(begin <= at < end for begin, end in axis) for at in range(axis[-1][1])) for axis in spans)
    return places, overlaps


def average(c):
    magnitude = c.row.function(torch.from_numpy(finite_magnitude(c.x[0].v)), **c.a).numpy()
    return [accumulated(c.truth[0], magnitude, average_roundings(c)[0], 2).store()]


def average_gradient(c):
    (magnitude,) = pull(c, [c.x[0].v], finite_magnitude(c.g[0].v))
    return [accumulated(c.truth_gradients[0], magnitude.numpy(), average_roundings(c)[1], 2).store()]


def largest_gradient(c):
    """A window with a NaN gives its gradient, as NaN, to the first one; PyTorch gives g to the last."""
    (part,) = gradient_of_moves(c)
    return [freed(part, np.isnan(c.x[0].v))]


def largest_nan(c):
    (rows, above), (columns, left) = windows(c)
    bad = np.pad(np.isnan(c.x[0].v), ((0, 0), (0, 0), (above, above), (left, left)))
    first = np.zeros_like(bad)
    for image, channel, y, x in np.ndindex(c.truth[0].shape if bad.any() else (0, 0, 0, 0)):
        window = (image, channel, slice(*rows[y]), slice(*columns[x]))
        if bad[window].any():
            first[window][np.unravel_index(np.argmax(bad[window]), bad[window].shape)] = True
    return [first[:, :, above:first.shape[2] - above, left:first.shape[3] - left]]


WINDOWS = [
    Row("conv1d", torch_convolution, draw_convolution("x"), convolution, convolution_gradient),
    Row("conv2d", torch_convolution, draw_convolution("yx"), convolution, convolution_gradient),
    Row("conv_transpose2d", torch_transposed, draw_convolution("yx", transposed=True), sums_of_products, transposed_gradient),
    Row("max_pool2d", pooled(functional.max_pool2d), draw_pool, gradient=largest_gradient, nan=largest_nan),
    Row("adaptive_max_pool2d", adapted(functional.adaptive_max_pool2d), draw_adaptive, gradient=largest_gradient, nan=largest_nan),
    Row("avg_pool2d", torch_average, lambda d: draw_pool(d, count_include_pad=d.below(2)), average, average_gradient),
    Row("adaptive_avg_pool2d", adapted(functional.adaptive_avg_pool2d), draw_adaptive, average, average_gradient),
]
