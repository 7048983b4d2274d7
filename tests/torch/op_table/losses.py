"""Losses: FP32 for 16-bit inputs."""

import math

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, ball, exact, widened
from op_table.case import Row, Spec
from op_table.normalization import logsumexp



def draw_classes(d):
    rows, classes = d.between(1, 20), d.extent() or 1
    a = {"ignore_index": d.below(classes)} if d.chance(0.3) else {}
    return [Spec((rows, classes), -8, 8), Spec((rows,), gradient=False, integers=classes)], a


def draw_smoothed(d):
    specs, a = draw_classes(d)
    return specs, a | ({"label_smoothing": d.choice([0.1, 0.25])} if d.chance(0.5) else {})


def of_classes(function):
    return lambda x, target, ignore_index=-100, **a: function(x, target, ignore_index=int(ignore_index), **a)


def targets(c):
    """The target of each row, and which rows count."""
    target = c.x[1].v.astype(int)
    return target, target != c.a.get("ignore_index", -100)


def chosen(x, target):
    return x.moved(lambda v: np.take_along_axis(v, target[:, None], 1))


def mean_of_rows(terms, counted):
    total = terms.times(counted[:, None]).sum((0, 1), keepdims=False) if counted.any() else exact(0.0)
    return [(total / exact(float(counted.sum()))).wide()]


def cross_entropy(c):
    x, (target, counted), smoothing = c.x[0], targets(c), c.a.get("label_smoothing", 0)
    c.sums = logsumexp(x)
    terms = c.sums - chosen(x, target) * (1 - ball(smoothing)) - x.sum(1) / x.v.shape[1] * smoothing if smoothing else c.sums - chosen(x, target)
    return mean_of_rows(terms, counted)


def cross_entropy_gradient(c):
    x, (target, counted), smoothing = c.x[0], targets(c), ball(c.a.get("label_smoothing", 0))
    classes = x.v.shape[1]
    probability = widened(lambda x, s: (x - s).exp(), x, c.sums)
    onehot = np.eye(classes)[target]
    share = probability - (1 - smoothing).moved(lambda v: v * onehot) - smoothing / classes
    gradient = share * (c.g[0] / exact(float(counted.sum())))
    return [gradient.where(counted[:, None], exact(np.zeros(x.v.shape))).store(), None]


def nll(c):
    target, counted = targets(c)
    return mean_of_rows(-chosen(c.x[0], target), counted)


def nll_gradient(c):
    target, counted = targets(c)
    zeros = exact(np.zeros(c.x[0].v.shape))
    gradient = (-c.g[0] / exact(float(counted.sum()))).moved(lambda v: np.broadcast_to(v, zeros.v.shape))
    return [gradient.where((np.eye(zeros.v.shape[1])[target] > 0) & counted[:, None], zeros).store(), None]


def by_element(op, function, term, gradient, both=False, attributes=None, x=(-4, 4), t=(-4, 4), special=(True, True), nan=None, **more):
    """A mean of `term`(x, t); `gradient`(g / count, x, t) is that of x, and of t its negative or none."""

    def draw(d):
        shape = d.shape()
        return ([Spec(shape, *x, special=special[0]), Spec(shape, *t, gradient=both, special=special[1])],
                attributes(d) if attributes else {})

    def value(c):
        terms = term(*c.x, **c.a).moved(lambda v: v.reshape(-1))
        return [(terms.sum(0, keepdims=False) / exact(float(terms.v.size))).wide()]

    def gradients(c):
        count = c.x[0].v.size
        part = gradient(c.g[0], 1 / count if count else math.nan, *c.x, **c.a).store()
        return [part, -part if both else None]

    gates = (lambda c: [nan(*(x.v for x in c.x))] * 2) if nan else None
    return Row(op, function, draw, value, gradients, wide=(True,), nan=gates, formula_decides=True, **more)


def magnitude(x):
    return Ball(np.abs(x.v), x.e, x.free)


def signed(x, sign):
    return Ball(x.v * sign, x.e * np.abs(sign), x.free)


def difference_nan(p, t):
    return np.isnan(p - t)


def huber(p, t, delta):
    d = magnitude(p - t)
    return (0.5 * d * d).where(d.v < delta, delta * (d - 0.5 * ball(delta)))


def huber_gradient(g, factor, p, t, delta):
    d = p - t
    slope = Ball(np.clip(d.v, -delta, delta), d.e)
    return g * factor * slope


def logits_term(x, t):
    large = (x * (1 - t)).where(x.v > 0, -x * t)
    return large + (-exact(np.abs(x.v))).exp().log1p()


def exact_logits(x, t):
    """Without terms that cancel."""
    return -(t * functional.logsigmoid(x) + (1 - t) * functional.logsigmoid(-x)).mean()


def at_least(x, least):
    return Ball(np.maximum(x.v, least), x.e, x.free)


def probability_term(p, t):
    return (t - 1) * at_least((-p).log1p(), -100) - t * at_least(p.log(), -100)


def probability_gradient(g, f, p, t):
    slope = widened(lambda g, p, t: (p - t) / at_least((1 - p) * p, 1e-12) * (g * f), g, p, t)
    # PyTorch's 1e-12 is rounded to FP32, for FP64 too.
    return Ball(slope.v, slope.e + np.where((1 - p.v) * p.v < 1e-12, 2.0**-24 * np.abs(slope.v), 0), slope.free)


def divergence(x, t):
    return (t * t.log()).where(t.v != 0, exact(np.zeros(t.v.shape))) - t * x


LOSSES = [
    Row("cross_entropy", of_classes(functional.cross_entropy), draw_smoothed, cross_entropy, cross_entropy_gradient, wide=(True,),
        formula_decides=True),
    Row("nll", of_classes(functional.nll_loss), draw_classes, nll, nll_gradient, wide=(True,)),
    by_element("mse", functional.mse_loss, lambda p, t: (p - t) * (p - t), lambda g, f, p, t: (p - t) * (g * (2 * f)), both=True),
    by_element("l1", functional.l1_loss, lambda p, t: magnitude(p - t), lambda g, f, p, t: signed(g * f, np.sign(p.v - t.v)), both=True,
               nan=difference_nan),
    by_element("huber", lambda p, t, delta: functional.huber_loss(p, t, delta=delta), huber, huber_gradient, both=True,
               attributes=lambda d: {"delta": d.choice([0.5, 1, 0.7])}, nan=difference_nan),
    by_element("bce_with_logits", functional.binary_cross_entropy_with_logits, lambda x, t: widened(logits_term, x, t),
               lambda g, f, x, t: widened(lambda g, x, t: (x.sigmoid() - t) * (g * f), g, x, t), x=(-12, 12), t=(0, 1),
               truth=exact_logits, special=(True, False)),
    by_element("binary_cross_entropy", functional.binary_cross_entropy, lambda p, t: widened(probability_term, p, t),
               probability_gradient, x=(0, 1), t=(0, 1),
               special=(False, False)),
    by_element("kl_div", lambda x, t: functional.kl_div(x, t, reduction="mean"), lambda x, t: widened(divergence, x, t),
               lambda g, f, x, t: -t * (g * f), x=(-8, 0), t=(0, 1)),
]
