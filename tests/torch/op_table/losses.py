"""Losses: FP32 for 16-bit inputs."""

import numpy as np
from torch.nn import functional

from balls import widened
from op_table.case import Row, Spec
from op_table.normalization import logsumexp



def draw_classes(d):
    rows, classes = d.between(1, 20), d.extent() or 1
    return [Spec((rows, classes), -8, 8), Spec((rows,), gradient=False, integers=classes)], {}


def cross_entropy(c):
    x, rows = c.x[0], c.x[0].v.shape[0]
    c.sums = logsumexp(x)
    chosen = x.moved(lambda v: np.take_along_axis(v, c.x[1].v[:, None].astype(int), 1))
    return [((c.sums - chosen).sum((0, 1), keepdims=False) / rows).wide()]


def cross_entropy_gradient(c):
    x, rows = c.x[0], c.x[0].v.shape[0]
    probability = widened(lambda x, s: (x - s).exp(), x, c.sums)
    return [((probability - np.eye(x.v.shape[1])[c.x[1].v.astype(int)]) * (c.g[0] / rows)).store(), None]


def draw_pair(d):
    shape = d.shape()
    return [Spec(shape), Spec(shape)], {}


def mse(c):
    p, t = c.x
    total = ((p - t) * (p - t)).moved(lambda v: v.reshape(-1)).sum(0, keepdims=False)
    return [(total / p.v.size).wide()]


def mse_gradient(c):
    p, t = c.x
    gradient = ((p - t) * (2 * c.g[0] / p.v.size)).store()
    return [gradient, -gradient]


LOSSES = [
    Row("cross_entropy", functional.cross_entropy, draw_classes, cross_entropy, cross_entropy_gradient, wide=(True,),
        formula_decides=True),
    Row("mse", functional.mse_loss, draw_pair, mse, mse_gradient, wide=(True,)),
]
