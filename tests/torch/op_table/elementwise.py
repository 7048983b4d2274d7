"""Elementwise ops: formulas of Balls, for inputs that broadcast."""

import math

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, ball, exact, widened
from op_table.case import Row, Spec



def expand(x, shape):
    return x.moved(lambda v: np.broadcast_to(v, shape))


def sum_to(x, shape):
    """The gradient of what was broadcast: a sum, rounded once."""
    shift = x.v.ndim - len(shape)
    axes = tuple(i for i in range(x.v.ndim) if i < shift or (shape[i - shift] == 1 and x.v.shape[i] != 1))
    return x.sum(axes).moved(lambda v: v.reshape(shape)).store() if axes else x


def elementwise(op, function, value, gradient, inputs=1, attributes=None, low=-4, high=4, nan=None, masks=(), **more):
    """`value` of the inputs, `gradient` of g, the inputs and y: formulas of Balls, with the attributes by name."""

    def draw(d):
        specs = [Spec(shape, low, high) for shape in d.broadcast(inputs)]
        for i in masks:
            specs[i] = Spec(specs[i].shape, mask=True, gradient=False)
        return specs, attributes(d) if attributes else {}

    def values(c):
        c.expanded = [expand(x, c.truth[0].shape) for x in c.x]
        c.y = value(*c.expanded, **c.a).store()
        return [c.y]

    def gradients(c):
        parts = gradient(c.g[0], *c.expanded, y=c.y, **c.a)
        return [part if part is None else sum_to(part.store(), x.v.shape) for part, x in zip(parts, c.x)]

    def gates(c):
        mask = nan(*(x.v for x in c.expanded))
        return [sum_to(ball(mask), x.v.shape).v > 0 for x in c.x]

    return Row(op, function, draw, values, gradients, nan=gates if nan else None, **more)


def ties(mine, other):
    return np.where(mine == other, 0.5, mine > other)


def any_nan(*values):
    return np.logical_or.reduce([np.isnan(v) for v in values])


def normal_distribution(x):
    """Phi, with a relative error in its tail as well."""
    return 0.5 * torch.special.erfc(-x * math.sqrt(0.5))


def phi(x):
    tail = normal_distribution(torch.from_numpy(x.v)).numpy()
    return x._function(tail, 0)


def density(x):
    return (-(x * x * 0.5)).exp() * (1 / math.sqrt(2 * math.pi))


TWICE_ROOT = 2 * math.sqrt(2 / math.pi)


def gelu_argument(x):
    return TWICE_ROOT * (x + 0.044715 * (x * x * x))


def gelu_tanh_gradient(g, x):
    s, rest = gelu_argument(x).sigmoid(), (-gelu_argument(x)).sigmoid()
    return g * (s + x * (s * rest) * (TWICE_ROOT * (1 + 3 * 0.044715 * (x * x))))


def silu_gradient(g, x):
    return g * (x.sigmoid() * (1 + x * (-x).sigmoid()))


def philox_uniform(seed, stream, count):
    """The first numbers of Philox4x32-10, in [0, 1), multiples of 2^-24."""
    low, blocks = np.uint64(0xFFFFFFFF), np.arange(-(-count // 4), dtype=np.uint64)
    words = lambda value: (np.uint64(value) & low, np.uint64(value) >> np.uint64(32))
    c0, c1, c2, c3 = blocks & low, blocks >> np.uint64(32), *(np.full_like(blocks, word) for word in words(stream))
    k0, k1 = words(seed)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return (np.stack([c0, c1, c2, c3], 1).reshape(-1)[:count] >> np.uint64(8)) * 2.0**-24


def dropout_factor(x, p, seed, stream):
    kept = philox_uniform(int(seed), int(stream), math.prod(x.shape)).reshape(x.shape) >= p
    return kept * (1 / (1 - p) if p < 1 else 0.0)


def dropped(x, p, seed, stream):
    return x * ball(dropout_factor(x.v, p, seed, stream))


ELEMENTWISE = [
    elementwise("add", torch.add, lambda a, b: a + b, lambda g, a, b, y: (g, g), 2),
    elementwise("sub", torch.sub, lambda a, b: a - b, lambda g, a, b, y: (g, -g), 2),
    elementwise("mul", torch.mul, lambda a, b: a * b, lambda g, a, b, y: (g * b, g * a), 2),
    elementwise("div", torch.div, lambda a, b: a / b, lambda g, a, b, y: (g / b, -(g * y).store() / b), 2),
    elementwise("neg", torch.neg, lambda x: -x, lambda g, x, y: (-g,)),
    elementwise("maximum", torch.maximum, lambda a, b: a.where((a.v > b.v) | np.isnan(a.v), b),
                lambda g, a, b, y: (g.times(ties(a.v, b.v)), g.times(ties(b.v, a.v))), 2, nan=any_nan),
    elementwise("minimum", torch.minimum, lambda a, b: a.where((a.v < b.v) | np.isnan(a.v), b),
                lambda g, a, b, y: (g.times(ties(b.v, a.v)), g.times(ties(a.v, b.v))), 2, nan=any_nan),
    elementwise("where", lambda c, a, b: torch.where(c, a, b), lambda c, a, b: a.where(c.v != 0, b),
                lambda g, c, a, b, y: (None, g.times(c.v != 0), g.times(c.v == 0)), 3, masks=(0,)),
    elementwise("masked_fill", lambda x, m, value: torch.masked_fill(*torch.broadcast_tensors(x, m), value),
                lambda x, m, value: x.where(m.v == 0, ball(value)), lambda g, x, m, y, value: (g.times(m.v == 0), None), 2,
                lambda d: {"value": d.between(-64, 64) / 8}, masks=(1,)),
    elementwise("clamp", lambda x, min, max: torch.clamp(x, min, max),
                lambda x, min, max: exact(np.clip(x.v, min, max)),
                lambda g, x, y, min, max: (g.times((x.v >= min) & (x.v <= max)),), 1,
                lambda d: {"min": d.between(-24, 0) / 8, "max": d.between(0, 24) / 8}, nan=any_nan),
    elementwise("abs", torch.abs, lambda x: exact(np.abs(x.v)), lambda g, x, y: (exact(g.v * np.sign(x.v)),), nan=any_nan),
    elementwise("sqrt", torch.sqrt, lambda x: x.sqrt(), lambda g, x, y: (g / (y + y),), low=-0.5, high=8),
    elementwise("rsqrt", torch.rsqrt, lambda x: widened(lambda x: 1 / x.sqrt(), x),
                lambda g, x, y: (widened(lambda g, y: -0.5 * g * (y * y * y), g, y),), low=-0.5, high=8),
    elementwise("reciprocal", torch.reciprocal, lambda x: 1 / x, lambda g, x, y: (widened(lambda g, y: -g * (y * y), g, y),)),
    elementwise("exp", torch.exp, lambda x: widened(Ball.exp, x), lambda g, x, y: (g * y,), low=-12, high=12),
    elementwise("log", torch.log, lambda x: widened(Ball.log, x), lambda g, x, y: (g / x,), low=-0.5, high=8),
    elementwise("pow", torch.pow, lambda a, b: widened(Ball.pow, a, b), lambda g, a, b, y: (
        exact(np.zeros(y.v.shape)).where(b.v == 0, widened(lambda g, a, b: g * (b * a.pow(b - 1)), g, a, b)),
        exact(np.zeros(y.v.shape)).where((a.v == 0) & (b.v >= 0), widened(lambda g, a, b: g * (a.pow(b) * a.log()), g, a, b))), 2),
    elementwise("relu", torch.relu, lambda x: exact(np.maximum(x.v, 0)), lambda g, x, y: (g.times(x.v > 0),), nan=any_nan),
    elementwise("tanh", torch.tanh, lambda x: widened(Ball.tanh, x),
                lambda g, x, y: (widened(lambda g, y: g * (1 - y * y), g, y),)),
    elementwise("sigmoid", torch.sigmoid, lambda x: widened(Ball.sigmoid, x),
                lambda g, x, y: (widened(lambda g, y: g * ((1 - y) * y), g, y),), low=-12, high=12),
    elementwise("silu", functional.silu, lambda x: widened(lambda x: x * x.sigmoid(), x),
                lambda g, x, y: (widened(silu_gradient, g, x),), low=-12, high=12),
    elementwise("softplus", functional.softplus, lambda x: widened(lambda x: ball(np.maximum(x.v, 0)) + (-ball(np.abs(x.v))).exp().log1p(), x),
                lambda g, x, y: (widened(lambda g, x: g * x.sigmoid(), g, x),), low=-30, high=30,
                truth=lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    elementwise("gelu", functional.gelu, lambda x: widened(lambda x: x * phi(x), x),
                lambda g, x, y: (widened(lambda g, x: g * (phi(x) + x * density(x)), g, x),), low=-12, high=12,
                truth=lambda x: x * normal_distribution(x), formula_decides=True),
    elementwise("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh"),
                lambda x: widened(lambda x: x * gelu_argument(x).sigmoid(), x),
                lambda g, x, y: (widened(gelu_tanh_gradient, g, x),), low=-8, high=8,
                truth=lambda x: x * torch.sigmoid(TWICE_ROOT * (x + 0.044715 * x**3)), formula_decides=True),
    elementwise("dropout", lambda x, **a: x * torch.from_numpy(np.asarray(dropout_factor(x, **a))).to(x.dtype), dropped,
                lambda g, x, y, **a: (dropped(g, **a),), 1,
                lambda d: {"p": d.choice([0, 0.25, 0.4, 1]), "seed": d.below(1 << 50), "stream": d.below(1 << 50)}),
    elementwise("scale", lambda x, factor: x * factor, lambda x, factor: x * factor, lambda g, x, y, factor: (g * factor,), 1,
                lambda d: {"factor": d.choice([0.3, -3, 0.0625, 2.0**10, 1 / 7])}),
]
