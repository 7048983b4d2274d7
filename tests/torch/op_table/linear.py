"""Ops that are linear in each of their inputs: moves, sums, and sums of products."""

import math

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, accumulated
from op_table.case import DTYPES, TORCH, Row, Spec



def pull(c, inputs, gradient):
    """The gradients of the inputs, of PyTorch's function in FP64."""
    leaves = [torch.from_numpy(np.array(x)) for x in inputs]
    wanted = [leaf.requires_grad_() for leaf, spec in zip(leaves, c.specs) if spec.gradient]
    output = c.row.function(*c.typed(leaves), **c.a)
    found = iter(torch.autograd.grad(output, wanted, torch.from_numpy(np.array(gradient)), allow_unused=True))
    return [next(found) if spec.gradient else None for spec in c.specs]


def finite_magnitude(v):
    """What is not finite is judged by its place, and leaves the other terms as they are."""
    return np.where(np.isfinite(v), np.abs(v), 0)


def of_floats(c, change):
    return [change(x.v) if spec.integers is None and not spec.mask else x.v for x, spec in zip(c.x, c.specs)]


def sums_of_products(c, arity=2):
    """The sums' magnitudes and numbers of terms are what the op gives for the magnitudes of its inputs, and for ones."""
    run = lambda change: c.row.function(*c.typed([torch.from_numpy(np.array(x)) for x in of_floats(c, change)]), **c.a).numpy()
    arity = min(arity, sum(spec.gradient for spec in c.specs))
    return [accumulated(c.truth[0], run(finite_magnitude), run(np.ones_like), arity).store()]


def gradient_of_products(c):
    """Of matrix products and convolutions: g meets the other factor. A third input is the bias, which g alone reaches."""
    magnitudes, counts = pull(c, of_floats(c, finite_magnitude), finite_magnitude(c.g[0].v)), pull(c, of_floats(c, np.ones_like), np.ones_like(c.g[0].v))
    return [accumulated(t, m.numpy(), n.numpy(), 2 if i < 2 else 1).store()
            for i, (t, m, n) in enumerate(zip(c.truth_gradients, magnitudes, counts))]


def gradient_of_moves(c):
    """Each element of the input gets the sum of the gradients of the places that it went to."""
    inputs = [x.v for x in c.x]
    magnitudes, counts = pull(c, inputs, finite_magnitude(c.g[0].v)), pull(c, inputs, np.ones_like(c.g[0].v))
    return [t if m is None else accumulated(t, m.numpy(), n.numpy(), 1).store() for t, m, n in zip(c.truth_gradients, magnitudes, counts)]


def named_list(items):
    return {"rank": len(items), **{f"d{i}": item for i, item in enumerate(items)}}


def listed(rank, **attributes):
    return [int(attributes[f"d{i}"]) for i in range(int(rank))]


def draw_reduction(d):
    shape = d.shape()
    return [Spec(shape)], {"dims": d.below(1 << len(shape)), "keep": d.below(2)}


def reduced(rank, dims):
    return [i for i in range(rank) if int(dims) >> i & 1]


def torch_sum(x, dims, keep):
    axes = reduced(x.dim(), dims)
    return x.sum(axes, keepdim=bool(keep)) if axes else x + 0


def torch_mean(x, dims, keep):
    axes = reduced(x.dim(), dims)
    return x.mean(axes, keepdim=bool(keep)) if axes else x + 0


def mean_value(c):
    x, axes = c.x[0], reduced(c.x[0].v.ndim, c.a["dims"])
    count = math.prod(x.v.shape[i] for i in axes)
    total = x.sum(tuple(axes)) / count if axes else x
    return [total.moved(lambda v: v.reshape(c.truth[0].shape)).store()]


def mean_gradient(c):
    x, axes = c.x[0], reduced(c.x[0].v.ndim, c.a["dims"])
    count = math.prod(x.v.shape[i] for i in axes)
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.v.shape))
    g = c.g[0].moved(lambda v: np.broadcast_to(v.reshape(kept), x.v.shape))
    return [(g * (1 / count)).store() if count else g]


def draw_matmul(d):
    m, n, k = d.extent(), d.extent(), d.extent()
    batch = d.shape(0, 2, 6)
    while m * n * k * math.prod(batch) > 20000:
        m, n, k = max(m // 2, 1), max(n // 2, 1), max(k // 2, 1)
    return [Spec((*batch, m, k)), Spec((*batch, k, n))], {}


def draw_linear(d):
    (x, w), _ = draw_matmul(d)
    bias = [Spec((w.shape[-1],))] if d.chance(0.7) else []
    return [Spec(x.shape[-2:]), Spec((w.shape[-1], x.shape[-1])), *bias], {}


def draw_slice(d):
    shape = d.shape(1)
    dim = d.below(len(shape))
    start, step = d.below(shape[dim] + 1), d.between(1, 3)
    extent = d.between(0, -(-(shape[dim] - start) // step))
    return [Spec(shape)], {"dim": dim, "start": start, "extent": extent, "step": step}


def torch_slice(x, dim, start, extent, step):
    return x[(slice(None),) * int(dim) + (slice(int(start), int(start + extent * step), int(step)),)]


def draw_split(d):
    shape = list(d.shape(1))
    dim, parts = d.below(len(shape)), d.between(1, 4)
    shape[dim] = parts * d.between(1, 3)
    return [Spec(tuple(shape))], {"dim": dim, "parts": parts}


def draw_reshape(d):
    shape = d.shape(0, 4)
    target = [shape[i] for i in d.order(len(shape))]
    if len(target) > 1 and d.chance(0.5):
        target = [target[0] * target[1], *target[2:]]
    return [Spec(shape)], named_list(target)


def draw_expand(d):
    whole = d.shape()
    return [Spec(tuple(1 if d.chance(0.4) else extent for extent in whole)[d.below(len(whole) + 1) if d.chance(0.3) else 0:])], named_list(whole)


def draw_permute(d):
    shape = d.shape()
    return [Spec(shape)], named_list(d.order(len(shape)))


def draw_cat(d):
    shape = list(d.shape(1, 3))
    dim = d.below(len(shape))
    return [Spec((*shape[:dim], d.extent(), *shape[dim + 1:])) for _ in range(d.between(1, 4))], {"dim": dim}


def draw_embedding(d):
    rows = d.between(1, 12)
    return [Spec((rows, d.extent())), Spec(d.shape(0, 3, 40), gradient=False, integers=rows)], {}


def draw_indexed(d):
    """x, and indices of which no extent but that of dim is larger."""
    shape = [max(extent, 1) for extent in d.shape(1, 3)]
    dim = d.below(len(shape))
    indices = tuple(d.extent() if i == dim else d.between(1, extent) for i, extent in enumerate(shape))
    return [Spec(tuple(shape)), Spec(indices, gradient=False, integers=shape[dim])], {"dim": dim}


def draw_selected(d):
    (x, indices), a = draw_indexed(d)
    return [x, Spec(indices.shape[:1], gradient=False, integers=indices.integers)], a


def draw_scattered(d):
    (x, indices), a = draw_indexed(d)
    return [x, indices, Spec(indices.shape)], a


def sums_of_terms(c):
    return sums_of_products(c, arity=1)


def draw_cast(d):
    return [Spec(d.shape(), *d.choice([(-4, 4), (-1e5, 1e5), (-1e-6, 1e-6)]))], {"dtype": d.below(4)}


def cast_value(c):
    return [ball_of(c.x[0].v).store(DTYPES[int(c.a["dtype"])])]


def ball_of(values):
    """Values that may not fit the format that they are stored in."""
    return Ball(values)


def one(spec):
    return lambda d: ([Spec(d.shape())], {}) if spec is None else spec


MOVES = [
    Row("sum", torch_sum, draw_reduction, sums_of_products, gradient_of_moves),
    Row("mean", torch_mean, draw_reduction, mean_value, mean_gradient),
    Row("copy", lambda x: x + 0, one(None)),
    Row("cast", lambda x, dtype: x.to(TORCH[DTYPES[int(dtype)]]), draw_cast, cast_value, lambda c: [Ball(c.truth_gradients[0]).store(c.dtype)]),
    Row("permute", lambda x, **a: x.permute(listed(**a)), draw_permute),
    Row("transpose", lambda x: x.transpose(-1, -2), lambda d: ([Spec(d.shape(2))], {})),
    Row("reshape", lambda x, **a: x.reshape(listed(**a)), draw_reshape),
    Row("expand", lambda x, **a: x.expand(listed(**a)), draw_expand, gradient=gradient_of_moves),
    Row("slice", torch_slice, draw_slice),
    Row("split", lambda x, dim, parts: x.chunk(int(parts), int(dim)), draw_split, slots=lambda a: range(int(a["parts"]))),
    Row("cat", lambda *x, dim: torch.cat(x, int(dim)), draw_cat),
    Row("gather", lambda x, i, dim: x.gather(int(dim), i), draw_indexed, gradient=gradient_of_moves),
    Row("index_select", lambda x, i, dim: x.index_select(int(dim), i), draw_selected, gradient=gradient_of_moves),
    Row("scatter_add", lambda x, i, v, dim: x.scatter_add(int(dim), i, v), draw_scattered, sums_of_terms, gradient_of_moves),
    Row("embedding", lambda w, i: functional.embedding(i, w), draw_embedding, gradient=gradient_of_moves),
]

PRODUCTS = [
    Row("matmul", torch.matmul, draw_matmul, sums_of_products, gradient_of_products),
    Row("linear", functional.linear, draw_linear, sums_of_products, gradient_of_products),
]
