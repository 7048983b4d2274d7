"""The table of ops: one row each, with PyTorch's function, how inputs are drawn, and the formulas that the roundings are counted by.

A row without formulas is exact: what it computes, or its gradient, only moves or chooses elements. Formulas are those of
docs/ops.md, of Balls (balls.py); `store()` stands where a tensor is written, and `widened` where a formula is computed in FP64.
"""

import dataclasses
import math
from typing import Callable, Optional

import numpy as np
import torch
from torch.nn import functional

from balls import Ball, accumulated, ball, either, exact, widened

DTYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "u8", "boolean")  # by their numbers in ours


@dataclasses.dataclass
class Spec:
    """An input: uniform in [low, high); or an index below `integers`; or a mask."""

    shape: tuple
    low: float = -4
    high: float = 4
    gradient: bool = True
    integers: Optional[int] = None
    mask: bool = False
    wide: bool = False  # FP32 where the op runs in 16 bits (parameters of batch_norm)
    in_place: bool = False  # which takes a dense tensor


@dataclasses.dataclass
class Row:
    op: str
    function: Callable  # PyTorch's, of the inputs and the attributes by name
    draw: Callable  # of a Draw: the specs of the inputs, and the attributes
    value: Optional[Callable] = None  # of a case: a Ball for each output
    gradient: Optional[Callable] = None  # of a case: a Ball, or None, for each input
    truth: Optional[Callable] = None  # where PyTorch's function is not accurate in FP64
    variant: str = ""
    wide: tuple = ()  # which outputs are FP32 for 16-bit inputs
    slots: Callable = lambda a: (0,)  # which of our outputs PyTorch's are
    nan: Optional[Callable] = None  # of a case: where a NaN that decides a gate makes our gradient NaN (docs/ops.md)
    formula_decides: bool = False  # NaN and Inf may stand where the formula has them: PyTorch's composes or saturates

    @property
    def name(self):
        return f"{self.op} ({self.variant})" if self.variant else self.op


class Draw:
    def __init__(self, random):
        self.random = random

    def chance(self, p):
        return self.random.random() < p

    def below(self, n):
        return int(self.random.integers(n))

    def between(self, low, high):
        return int(self.random.integers(low, high + 1))

    def choice(self, items):
        return items[self.below(len(items))]

    def extent(self):
        draw = self.random.random()
        return 0 if draw < 0.03 else 1 if draw < 0.15 else self.between(2, 6) if draw < 0.85 else self.between(7, 70)

    def shape(self, least=0, most=4, elements=1500):
        shape = tuple(self.extent() for _ in range(self.between(least, most)))
        while math.prod(shape) > elements:
            shape = tuple(max(1, extent // 2) for extent in shape)
        return shape

    def broadcast(self, count):
        """Shapes that broadcast to one of them, or to a larger one."""
        whole = self.shape()
        shapes = [tuple(1 if self.chance(0.25) else extent for extent in whole)[self.below(len(whole) + 1) if self.chance(0.3) else 0:]
                  for _ in range(count)]
        if self.chance(0.6):
            shapes[self.below(count)] = whole
        return shapes

    def order(self, rank):
        return [int(i) for i in self.random.permutation(rank)]


# -- elementwise ops


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


def eighths(low, high):
    return lambda d: d.between(low, high) / 8


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
    elementwise("clip", lambda x, min, max: torch.clamp(x, min, max),
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
    elementwise("scale", lambda x, factor: x * factor, lambda x, factor: x * factor, lambda g, x, y, factor: (g * factor,), 1,
                lambda d: {"factor": d.choice([0.3, -3, 0.0625, 2.0**10, 1 / 7])}),
]

# -- ops that are linear in each of their inputs: sums of products


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


def sums_of_products(c):
    """The sums' magnitudes and numbers of terms are what the op gives for the magnitudes of its inputs, and for ones."""
    run = lambda change: c.row.function(*c.typed([torch.from_numpy(np.array(x)) for x in of_floats(c, change)]), **c.a).numpy()
    arity = min(2, sum(spec.gradient for spec in c.specs))
    return [accumulated(c.truth[0], run(finite_magnitude), run(np.ones_like), arity).store()]


def gradient_of_products(c):
    """Of matrix products and convolutions: g meets the other factor. A third input is the bias, which g alone reaches."""
    magnitudes, counts = pull(c, of_floats(c, finite_magnitude), finite_magnitude(c.g[0].v)), pull(c, of_floats(c, np.ones_like), np.ones_like(c.g[0].v))
    return [accumulated(t, m.numpy(), n.numpy(), 2 if i < 2 else 1).store()
            for i, (t, m, n) in enumerate(zip(c.truth_gradients, magnitudes, counts))]


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


def draw_cast(d):
    return [Spec(d.shape(), *d.choice([(-4, 4), (-1e5, 1e5), (-1e-6, 1e-6)]))], {"dtype": d.below(4)}


TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
         "boolean": torch.bool}


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
    Row("embedding", lambda w, i: functional.embedding(i, w), draw_embedding, gradient=gradient_of_moves),
    Row("max_pool2d", torch_max_pool2d, draw_max_pool2d, gradient=max_pool2d_gradient, nan=max_pool2d_nan),
]

PRODUCTS = [
    Row("matmul", torch.matmul, draw_matmul, sums_of_products, gradient_of_products),
    Row("linear", functional.linear, draw_linear, sums_of_products, gradient_of_products),
    Row("conv2d", torch_conv2d, draw_conv2d, convolution, gradient_of_convolution),
]

# -- rows, normalisation, attention


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


def draw_attention(d):
    batch, queries, keys, width = d.shape(0, 2, 4), d.between(1, 6), d.between(1, 6), d.choice([1, 4, 5, 16])
    batch = tuple(max(extent, 1) for extent in batch)
    specs = [Spec((*batch, queries, width)), Spec((*batch, keys, width)), Spec((*batch, keys, d.between(1, 5)))]
    return specs + ([Spec((queries, keys), mask=True, gradient=False)] if d.chance(0.5) else []), {}


def product(a, b):
    magnitude = (np.abs(a.v) + a.e) @ (np.abs(b.v) + b.e)
    result = accumulated(a.v @ b.v, magnitude, a.v.shape[-1], 2)
    free = (a.free is not False and np.any(a.free)) or (b.free is not False and np.any(b.free))
    return Ball(result.v, result.e + (magnitude - np.abs(a.v) @ np.abs(b.v)), True if free else result.free)


def turned(x):
    return x.moved(lambda v: np.swapaxes(v, -1, -2))


def attention(c):
    q, k, v = c.x[:3]
    c.factor = 1 / math.sqrt(q.v.shape[-1])
    scores = (product(q, turned(k)).store() * c.factor).store()
    c.weights = softmax(masked(scores, c.x[3]) if len(c.x) > 3 else scores).store()
    return [product(c.weights, v).store()]


def attention_gradient(c):
    (q, k, v), g = c.x[:3], c.g[0]
    scores = softmax_gradient(product(g, turned(v)).store(), c.weights).store()
    products = (scores * c.factor).store()
    return [product(products, k).store(), product(turned(products), q).store(), product(turned(c.weights), g).store(), None][:len(c.x)]


def exact_attention(q, k, v, mask=None):
    """PyTorch's own adds -Inf to masked scores, and gives 0 for a query without keys."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1) @ v


def torch_attention(q, k, v, mask=None):
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
    Row("attention", torch_attention, draw_attention, attention, attention_gradient, truth=exact_attention, formula_decides=True),
]

# -- losses


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

ROWS = [*ELEMENTWISE, *MOVES, *PRODUCTS, *NORMALIZATIONS, *LOSSES]
