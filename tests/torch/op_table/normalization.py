"""Ops on rows, normalizations and attention."""

import functools
import math

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, accumulated, ball, either, widened
from op_table.case import Row, Spec



def along(axis, formula):
    """A formula for the last dimension, along another one."""
    return lambda *balls: formula(*(b.moved(lambda v: np.moveaxis(v, axis, -1)) for b in balls)).moved(lambda v: np.moveaxis(v, -1, axis))


def exponentials(x, largest):
    return widened(lambda x, m: (x - m).exp(), x, largest)


def softmax(x):
    if x.v.size == 0:
        return x
    terms = exponentials(x, x.largest())
    return terms / terms.sum(-1)


def softmax_gradient(g, y):
    return y * (g - (g * y).sum(-1))


def masked(x, mask):
    return x.where(mask.v == 0, ball(-np.inf))


def masked_softmax_gradient(g, y, mask):
    """Where the row has a NaN, so has the gradient of masked values; PyTorch's masked_fill gives them 0."""
    gradient = softmax_gradient(g, y).store()
    unknown = (mask.v != 0) & ~np.isfinite((g.v * y.v).sum(-1, keepdims=True))
    return Ball(gradient.v, gradient.e, either(gradient.free, unknown), True)


def log_softmax(x):
    if x.v.size == 0:
        return x
    logarithm = widened(Ball.log, exponentials(x, x.largest()).sum(-1))
    return (x - x.largest()) - logarithm


def log_softmax_gradient(g, y):
    return widened(lambda g, y, total: g - y.exp() * total, g, y, g.sum(-1))


def logsumexp(x):
    largest = x.largest()
    return widened(lambda m, s: m + s.log(), largest, exponentials(x, largest).sum(-1))


def draw_rows(d, low=-8, high=8):
    shape = d.shape(1)
    return [Spec((*shape[:-1], max(shape[-1], 1)), low, high)], {}


def draw_along(d):
    (x,), _ = draw_rows(d)
    return [x], {"dim": d.below(len(x.shape))}


def draw_masked(d):
    (x,), _ = draw_rows(d)
    return [x, Spec(x.shape, mask=True, gradient=False)], {}


def saved(c, compute):
    """The stored output, which the gradient's formula starts from."""
    c.y = compute()
    return [c.y]


def draw_norm(parameters):
    def draw(d):
        (x,), _ = draw_rows(d, -4, 4)
        return [x, *(Spec(x.shape[-1:]) for _ in range(parameters))], {"eps": d.choice([1e-5, 1e-3])}
    return draw


def rows_sum(x):
    """Over all rows, for a gradient of a parameter."""
    axes = tuple(range(x.v.ndim - 1))
    return x.sum(axes, keepdims=False) if axes else x


def layer_norm_statistics(c):
    x, n = c.x[0], c.x[0].v.shape[-1]
    mean = x.sum(-1) / n
    squares = ((x - mean) * (x - mean)).sum(-1) / n
    return mean, widened(lambda v: 1 / (v + c.a["eps"]).sqrt(), squares)


def layer_norm(c):
    x, w, b = c.x
    mean, inverse = layer_norm_statistics(c)
    return [((x - mean) * inverse * w + b).store()]


def layer_norm_gradient(c):
    (x, w, b), g, n = c.x, c.g[0], c.x[0].v.shape[-1]
    mean, inverse = layer_norm_statistics(c)
    z = (x - mean) * inverse
    offset, slope = (g * w).sum(-1) / n, (g * w * z).sum(-1) / n
    return [(inverse * ((g * w - offset) - z * slope)).store(), rows_sum(g * z).store(), rows_sum(g).store()]


def rms_inverse(c):
    x = c.x[0]
    return widened(lambda v: 1 / (v + c.a["eps"]).sqrt(), (x * x).sum(-1) / x.v.shape[-1])


def rms_norm(c):
    x, w = c.x
    return [(x * rms_inverse(c) * w).store()]


def rms_norm_gradient(c):
    (x, w), g, inverse = c.x, c.g[0], rms_inverse(c)
    slope = inverse * inverse * ((g * x * w).sum(-1) / x.v.shape[-1])
    return [(inverse * (g * w - x * slope)).store(), rows_sum(g * (x * inverse)).store()]


def draw_batch_norm(d):
    shape = (d.between(2, 5), d.between(1, 20), *((d.between(1, 5), d.between(1, 5)) if d.chance(0.7) else ()))
    channels = shape[1:2]
    return [Spec(shape), Spec(channels, wide=True), Spec(channels, wide=True), Spec(channels, gradient=False, wide=True, in_place=True),
            Spec(channels, 0.5, 4, gradient=False, wide=True, in_place=True)], {"eps": 1e-5, "momentum": 0.125, "training": d.below(2)}


def torch_batch_norm(x, w, b, mean, variance, eps, momentum, training):
    mean, variance = mean.clone(), variance.clone()
    y = functional.batch_norm(x, mean, variance, w, b, bool(training), momentum, eps)
    return (y, mean, variance) if training else y


def exact_batch_norm(x, w, b, mean, variance, eps, momentum, training):
    """With the mean subtracted first: PyTorch's evaluation takes it out of the bias."""
    of = lambda p: p.reshape(-1, *(1,) * (x.dim() - 2))
    if training:
        outputs = torch_batch_norm(x, w, b, mean, variance, eps, momentum, training)
        axes = [i for i in range(x.dim()) if i != 1]
        mean, variance = x.mean(axes), x.var(axes, correction=0)
    y = (x - of(mean)) / (of(variance) + eps).sqrt() * of(w) + of(b)
    return (y, *outputs[1:]) if training else y


def by_channel(c, x):
    return x.moved(lambda v: v.reshape(-1, *(1,) * (c.x[0].v.ndim - 2)))


def batch_norm_statistics(c):
    """Mean and variance: the sums in FP32 by blocks, the blocks merged in FP64."""
    x = c.x[0]
    axes = tuple(i for i in range(x.v.ndim) if i != 1)
    count = x.v.size // max(x.v.shape[1], 1)
    if not c.a["training"]:
        return by_channel(c, c.x[3]), by_channel(c, c.x[4]), axes, count
    mean = x.sum(axes) / count
    return mean, ((x - mean) * (x - mean)).sum(axes) / count, axes, count


def batch_norm_inverse(c, variance):
    return widened(lambda v: 1 / (v + c.a["eps"]).sqrt(), variance)


def batch_norm(c):
    mean, variance, axes, count = batch_norm_statistics(c)
    y = (c.x[0] - mean) * (batch_norm_inverse(c, variance) * by_channel(c, c.x[1])) + by_channel(c, c.x[2])
    if not c.a["training"]:
        return [y.store()]
    m, flat = c.a["momentum"], lambda v: v.reshape(-1)
    # With an Inf in the channel ours are NaN: deviations are taken about the block's mean.
    infinite = ~np.isfinite(c.x[0].v).all(axes)
    running = lambda old, new: widened(lambda old, new: (1 - m) * old + m * new, old, new.moved(flat))
    statistics = [running(c.x[3], mean), running(c.x[4], variance * (count / (count - 1)))]
    return [y.store(), *(Ball(s.v, s.e, either(s.free, infinite)) for s in statistics)]


def batch_norm_gradient(c):
    (x, w), g = c.x[:2], c.g[0]
    mean, variance, axes, count = batch_norm_statistics(c)
    inverse, flat = batch_norm_inverse(c, variance), lambda v: v.reshape(-1)
    total, product = g.sum(axes), (g * (x - mean)).sum(axes) * inverse
    centered = (g - total / count) - (x - mean) * (product * inverse / count) if c.a["training"] else g
    return [(by_channel(c, w) * inverse * centered).store(), product.moved(flat), total.moved(flat), None, None]


def draw_group_norm(d):
    groups = d.between(1, 4)
    channels = groups * d.between(1, 5)
    shape = (d.between(1, 4), channels, *((d.between(1, 6), d.between(1, 6)) if d.chance(0.7) else ()))
    return [Spec(shape), Spec((channels,)), Spec((channels,))], {"groups": groups, "eps": 1e-5}


def by_group(c):
    """[N, groups, channels of a group, places] of [N, C, ...]"""
    shape, groups = c.x[0].v.shape, int(c.a["groups"])
    return lambda x: x.moved(lambda v: np.broadcast_to(v, shape).reshape(shape[0], groups, shape[1] // groups, -1))


def group_norm_statistics(c):
    x = by_group(c)(c.x[0])
    count = x.v.shape[2] * x.v.shape[3]
    mean = x.sum((2, 3)) / count
    return x - mean, widened(lambda v: 1 / (v + c.a["eps"]).sqrt(), ((x - mean) * (x - mean)).sum((2, 3)) / count), count


def group_norm(c):
    grouped = by_group(c)
    centered, inverse, _ = group_norm_statistics(c)
    y = centered * (inverse * grouped(by_channel(c, c.x[1]))) + grouped(by_channel(c, c.x[2]))
    return [y.moved(lambda v: v.reshape(c.truth[0].shape)).store()]


def group_norm_gradient(c):
    """A channel's sums are multiplied by its weight, and then added up."""
    grouped = by_group(c)
    g, w = grouped(c.g[0]), grouped(by_channel(c, c.x[1]))
    centered, inverse, count = group_norm_statistics(c)
    gradients, products, weights = g.sum(3), (g * centered).sum(3), w.moved(lambda v: v[..., :1])
    offset, slope = (weights * gradients).sum(2) / count, (weights * products).sum(2) * inverse * inverse / count
    dx = (inverse * ((g * w - offset) - centered * slope)).moved(lambda v: v.reshape(c.x[0].v.shape))
    of_channels = lambda x: x.moved(lambda v: v.reshape(v.shape[0], -1)).sum(0, keepdims=False).store()
    return [dx.store(), of_channels(products * inverse), of_channels(gradients)]


def torch_group_norm(x, w, b, groups, eps):
    return torch.group_norm(x, int(groups), w, b, eps)


KINDS = ("sdpa", "mha", "explicit")  # of attention, by their numbers in ours


def draw_attention(d, kind):
    batch, queries, keys, width = d.shape(0, 2, 4), d.between(1, 6), d.between(1, 6), d.choice([1, 4, 5, 16])
    batch = tuple(max(extent, 1) for extent in batch)
    specs = [Spec((*batch, queries, width)), Spec((*batch, keys, width)), Spec((*batch, keys, d.between(1, 5)))]
    return specs + ([Spec((queries, keys), mask=True, gradient=False)] if d.chance(0.5) else []), {"kind": KINDS.index(kind)}


def product(a, b):
    magnitude = (np.abs(a.v) + a.e) @ (np.abs(b.v) + b.e)
    result = accumulated(a.v @ b.v, magnitude, a.v.shape[-1], 2)
    free = (a.free is not False and np.any(a.free)) or (b.free is not False and np.any(b.free))
    return Ball(result.v, result.e + (magnitude - np.abs(a.v) @ np.abs(b.v)), True if free else result.free)


def turned(x):
    return x.moved(lambda v: np.swapaxes(v, -1, -2))


def explicit_attention(c):
    q, k, v = c.x[:3]
    c.factor = 1 / math.sqrt(q.v.shape[-1])
    scores = (product(q, turned(k)).store() * c.factor).store()
    c.weights = softmax(masked(scores, c.x[3]) if len(c.x) > 3 else scores).store()
    return [product(c.weights, v).store()]


def explicit_attention_gradient(c):
    (q, k, v), g = c.x[:3], c.g[0]
    scores = softmax_gradient(product(g, turned(v)).store(), c.weights).store()
    products = (scores * c.factor).store()
    return [product(products, k).store(), product(turned(products), q).store(), product(turned(c.weights), g).store(), None][:len(c.x)]


def multi_head_attention(c):
    q, k, v = c.x[:3]
    c.factor = 1 / math.sqrt(q.v.shape[-1])
    c.query = (q * c.factor).store()
    scores = product(c.query, turned(k)).store()
    c.weights = softmax(masked(scores, c.x[3]) if len(c.x) > 3 else scores).store()
    return [product(c.weights, v).store()]


def multi_head_attention_gradient(c):
    (q, k, v), g = c.x[:3], c.g[0]
    scores = softmax_gradient(product(g, turned(v)).store(), c.weights).store()
    query = (product(scores, k).store() * c.factor).store()
    return [query, product(turned(scores), c.query).store(), product(turned(c.weights), g).store(), None][:len(c.x)]


def math_path(c):
    """From FP32 of the inputs to the output all is FP32; a query without keys gets 0."""
    q, k, v = c.x[:3]
    c.factor = math.sqrt(1 / math.sqrt(q.v.shape[-1]))
    c.query, c.key = (q * c.factor).wide(), (k * c.factor).wide()
    scores = product(c.query, turned(c.key)).wide()
    scores = masked(scores, c.x[3]) if len(c.x) > 3 else scores
    has_none = np.all(scores.v == -np.inf, axis=-1, keepdims=True)
    c.weights = softmax(scores).where(~has_none, ball(0)).wide()
    return [product(c.weights, v).store()]


def math_path_gradient(c):
    (q, k, v), g = c.x[:3], c.g[0]
    scores = softmax_gradient(product(g, turned(v)).wide(), c.weights).wide()
    query, key = product(scores, c.key).wide(), product(turned(scores), c.query).wide()
    return [(query * c.factor).store(), (key * c.factor).store(), product(turned(c.weights), g).store(), None][:len(c.x)]


def exact_attention(q, k, v, mask=None, kind=None):
    """PyTorch's own gives 0 for a query without keys."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1) @ v


def torch_attention(q, k, v, mask=None, kind=None):
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else ~mask)


NORMALIZATIONS = [
    Row("softmax", lambda x: x.softmax(-1), draw_rows, lambda c: saved(c, lambda: softmax(c.x[0]).store()),
        lambda c: [softmax_gradient(c.g[0], c.y).store()]),
    Row("softmax_along", lambda x, dim: x.softmax(int(dim)), draw_along,
        lambda c: saved(c, lambda: along(int(c.a["dim"]), softmax)(c.x[0]).store()),
        lambda c: [along(int(c.a["dim"]), softmax_gradient)(c.g[0], c.y).store()]),
    Row("masked_softmax", lambda x, m: x.masked_fill(m, -math.inf).softmax(-1), draw_masked,
        lambda c: saved(c, lambda: softmax(masked(*c.x)).store()), lambda c: [masked_softmax_gradient(c.g[0], c.y, c.x[1]), None]),
    Row("log_softmax", lambda x: x.log_softmax(-1), draw_rows, lambda c: saved(c, lambda: log_softmax(c.x[0]).store()),
        lambda c: [log_softmax_gradient(c.g[0], c.y).store()]),
    Row("log_softmax_along", lambda x, dim: x.log_softmax(int(dim)), draw_along,
        lambda c: saved(c, lambda: along(int(c.a["dim"]), log_softmax)(c.x[0]).store()),
        lambda c: [along(int(c.a["dim"]), log_softmax_gradient)(c.g[0], c.y).store()]),
    Row("logsumexp", lambda x: x.logsumexp(-1), draw_rows,
        lambda c: saved(c, lambda: logsumexp(c.x[0]).moved(lambda v: v[..., 0]).store()),
        lambda c: [widened(lambda g, x, y: g * (x - y).exp(), c.g[0].moved(lambda v: v[..., None]), c.x[0],
                           c.y.moved(lambda v: v[..., None])).store()]),
    Row("layer_norm", lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps), draw_norm(2), layer_norm, layer_norm_gradient,
        formula_decides=True),
    Row("rms_norm", lambda x, w, eps: functional.rms_norm(x, x.shape[-1:], w, eps), draw_norm(1), rms_norm, rms_norm_gradient),
    Row("batch_norm", torch_batch_norm, draw_batch_norm, batch_norm, batch_norm_gradient, wide=(False, True, True),
        slots=lambda a: (0, 3, 4) if a["training"] else (0,), truth=exact_batch_norm, formula_decides=True),
    Row("group_norm", torch_group_norm, draw_group_norm, group_norm, group_norm_gradient, formula_decides=True),
    Row("attention", torch_attention, functools.partial(draw_attention, kind="explicit"), explicit_attention,
        explicit_attention_gradient, truth=exact_attention, variant="explicit", formula_decides=True),
    Row("attention", torch_attention, functools.partial(draw_attention, kind="mha"), multi_head_attention,
        multi_head_attention_gradient, truth=exact_attention, variant="mha", formula_decides=True),
    Row("attention", torch_attention, functools.partial(draw_attention, kind="sdpa"), math_path, math_path_gradient, variant="sdpa",
        formula_decides=True),
]
