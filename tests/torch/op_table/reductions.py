"""Reductions that are not linear."""

import math

import numpy as np
import torch

from balls import Ball, either, exact, widened
from op_table.case import Row, Spec
from op_table.linear import reduced


def draw_reduced(d, **more):
    shape = tuple(max(extent, 1) for extent in d.shape())
    return [Spec(shape)], {"dims": d.below(1 << len(shape)), "keep": d.below(2)} | more


def over(function):
    """Of the dimensions that are reduced: without any, PyTorch would reduce all."""
    def run(x, dims, keep, **a):
        axes = reduced(x.dim(), dims)
        return function(x, axes, bool(keep), **a) if axes else function(x[..., None], [-1], False, **a)
    return run


def axes_of(c):
    return tuple(reduced(c.x[0].v.ndim, c.a["dims"]))


def total(x, axes):
    return x.sum(axes) if axes else x


def in_shape_of_x(c, ball):
    axes = axes_of(c)
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(c.x[0].v.shape))
    return ball.moved(lambda v: np.broadcast_to(v.reshape(kept), c.x[0].v.shape))


def shaped(c, ball):
    return ball.moved(lambda v: v.reshape(c.truth[0].shape))


def count_of(c):
    return math.prod(c.x[0].v.shape[i] for i in axes_of(c))


def deviations(c):
    return c.x[0] - total(c.x[0], axes_of(c)) / count_of(c)


def variance(c):
    d = deviations(c)
    return [shaped(c, total(d * d, axes_of(c)) / max(0.0, count_of(c) - c.a["correction"])).store()]


def variance_gradient(c):
    room = max(0.0, count_of(c) - c.a["correction"])
    factor = 2 / room if room else math.inf
    return [(in_shape_of_x(c, c.g[0]) * factor * deviations(c)).store()]


def largest_gradient(c):
    x, y = c.x[0].v, in_shape_of_x(c, exact(c.truth[0])).v
    equal = x == y
    axes = axes_of(c)
    count = equal.sum(axes, keepdims=True) if axes else equal
    g = in_shape_of_x(c, c.g[0])
    part = (g / exact(np.broadcast_to(np.maximum(count, 1), x.shape))).where(equal, exact(np.zeros(x.shape))).store()
    # PyTorch multiplies the gradients of others by 0, which makes NaN of Inf.
    return [Ball(part.v, part.e, either(part.free, ~equal & ~np.isfinite(g.v)), True)]


def largest_nan(c):
    return [np.isnan(in_shape_of_x(c, exact(c.truth[0])).v)]


def norm(c):
    c.y = shaped(c, widened(lambda x: total(x * x, axes_of(c)).sqrt(), c.x[0])).store()
    return [c.y]


def norm_gradient(c):
    y = in_shape_of_x(c, c.y)
    return [(in_shape_of_x(c, c.g[0]) * (c.x[0] / y)).where(y.v != 0, exact(np.zeros(y.v.shape))).store()]


REDUCTIONS = [
    Row("var", over(lambda x, axes, keep, correction: x.var(axes, correction=int(correction), keepdim=keep)),
        lambda d: draw_reduced(d, correction=d.below(2)), variance, variance_gradient, formula_decides=True),
    Row("max", over(lambda x, axes, keep: x.amax(axes, keepdim=keep)), draw_reduced, gradient=largest_gradient, nan=largest_nan),
    Row("norm", over(lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep)), draw_reduced, norm, norm_gradient,
        formula_decides=True),
]
