"""Running error analysis: what an op call may err by, from the roundings of its definition (docs/numerics.md, "Bounds").

A Ball is a value in FP64 and a bound on how far the computed one lies from it. Its operators follow the arithmetic in force: an
operation errs by at most a unit roundoff of its result, sums and products of n terms by gamma_n times their magnitudes, elementary
functions by 2^-32, and what is stored in a format by half an ulp of that format. So a formula written with Balls gives its own bound,
cancellation and all, with no other factor.
"""

import contextlib
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Format:
    name: str
    fraction_bits: int
    largest_exponent: int  # of the largest finite value

    @property
    def smallest_exponent(self):  # of the smallest normal value
        return 1 - self.largest_exponent

    @property
    def tiny(self):  # half the smallest subnormal
        return np.ldexp(0.5, self.smallest_exponent - self.fraction_bits)

    @property
    def unit(self):
        return np.ldexp(0.5, -self.fraction_bits)

    @property
    def largest(self):
        return np.ldexp(2 - 2 * self.unit, self.largest_exponent)

    @property
    def overflow(self):
        """What rounding to nearest takes to Inf; beyond FP64 for FP64 itself."""
        return self.largest + np.ldexp(self.unit, self.largest_exponent) if self.largest_exponent < 1023 else np.inf

    def half_ulp(self, magnitude):
        _, exponent = np.frexp(magnitude)  # 0.5 <= fraction < 1
        return np.ldexp(0.5, np.maximum(exponent - 1, self.smallest_exponent) - self.fraction_bits)


FORMATS = {f.name: f for f in (Format("f64", 52, 1023), Format("f32", 23, 127), Format("f16", 10, 15), Format("bf16", 7, 127))}


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    store: Format  # of tensors
    unit: float
    tiny: float  # the error of a product below the normal range
    largest: float
    function: float  # relative error of an elementary function


def arithmetic_of(dtype):
    """FP32 for tensors of up to 32 bits, FP64 for FP64. The C library's functions, which FP64 gets, err by up to 5 ulp (erfc)."""
    store = FORMATS[dtype]
    compute = FORMATS["f64" if dtype == "f64" else "f32"]
    return Arithmetic(store, compute.unit, compute.tiny, compute.largest, 2.0**-49 if dtype == "f64" else 2.0**-32)


now = arithmetic_of("f32")


@contextlib.contextmanager
def arithmetic(new):
    global now
    before, now = now, new
    try:
        yield
    finally:
        now = before


def gamma(n):
    return n * now.unit / (1 - n * now.unit)


def either(a, b):
    return b if a is False else a if b is False else a | b


class Ball:
    """`free`: where an intermediate result may overflow, so that nothing is said of the result. `stored`: a tensor's values."""

    __slots__ = ("v", "e", "free", "stored")

    def __init__(self, v, e=0.0, free=False, stored=False):
        self.v, self.free, self.stored = np.asarray(v, np.float64), free, stored
        e = np.broadcast_to(np.asarray(e, np.float64), self.v.shape)
        # What is not finite is exact, or is not judged by a bound.
        self.e = np.where(np.isfinite(self.v), np.where(np.isnan(e), np.inf, e), 0.0)

    # -- one rounding

    def rounded(self):
        reach = np.abs(self.v) + self.e
        free = self.free
        if now.largest < FORMATS["f64"].largest:
            over = np.isfinite(self.v) & (reach * (1 + now.unit) > now.largest)
            if over.any():
                free = either(free, over)
        return Ball(self.v, self.e + now.unit * reach + now.tiny, free)

    def store(self, dtype=None):
        """Rounded to the format of tensors, or of `dtype`: what an op gives out."""
        if self.stored:
            return self
        form = FORMATS[dtype] if dtype else now.store
        if not dtype and form.unit <= now.unit:
            return Ball(self.v, self.e, self.free, True)
        reach = np.abs(self.v) + self.e
        over = np.isfinite(self.v) & (reach >= form.overflow)
        return Ball(self.v, self.e + form.half_ulp(np.where(np.isfinite(reach), reach, 0)), either(self.free, over) if over.any() else self.free, True)

    def wide(self):
        """Given out as it was computed: FP32, also where inputs have 16 bits."""
        return Ball(self.v, self.e, self.free, True)

    # -- arithmetic

    def __neg__(self):
        return Ball(-self.v, self.e, self.free, self.stored)

    def __add__(self, other):
        other = ball(other)
        return Ball(self.v + other.v, self.e + other.e, either(self.free, other.free)).rounded()

    def __sub__(self, other):
        return self + -ball(other)

    def __mul__(self, other):
        other = ball(other)
        e = np.abs(self.v) * other.e + np.abs(other.v) * self.e + self.e * other.e
        free = either(self.free, other.free)
        for a, b in ((self, other), (other, self)):
            if not np.isfinite(a.v).all():  # times what may have become 0: NaN
                free = either(free, ~np.isfinite(a.v) & (b.e >= np.abs(b.v)) & (b.e > 0))
        return Ball(self.v * other.v, e, free).rounded()

    def __truediv__(self, other):
        other = ball(other)
        quotient = self.v / other.v
        room = np.abs(other.v) - other.e
        e = np.where(room > 0, (self.e + np.abs(quotient) * other.e) / room, np.inf)
        return Ball(quotient, e, either(self.free, other.free)).rounded()

    def __radd__(self, other):
        return ball(other) + self

    def __rsub__(self, other):
        return ball(other) - self

    def __rmul__(self, other):
        return ball(other) * self

    def __rtruediv__(self, other):
        return ball(other) / self

    def sqrt(self):
        root = np.sqrt(self.v)
        least = np.sqrt(np.maximum(self.v - self.e, 0))
        # Roots of numbers that differ by e differ by no more than the root of e: that of 0 is known, too.
        e = np.where(self.e > 0, np.minimum(self.e / (root + least), np.sqrt(self.e)), 0)
        return Ball(root, e, self.free).rounded()

    def times(self, factor):
        """Exactly by 0, 1/2 or 1: a gate. Half of a subnormal is rounded."""
        factor = np.asarray(factor, np.float64)
        e = self.e * factor + np.where(factor == 0.5, now.store.tiny, 0)
        return Ball(np.where(factor == 0, 0, self.v * factor), e, self.free, self.stored)

    def sum(self, axis, keepdims=True):
        n = int(np.prod([self.v.shape[i] for i in np.atleast_1d(axis)])) if self.v.ndim else 1
        magnitude = (np.where(np.isfinite(self.v), np.abs(self.v), 0) + self.e).sum(axis, keepdims=keepdims)
        free = self.free if self.free is False else np.any(self.free, axis, keepdims=keepdims)
        over = magnitude > now.largest
        e = self.e.sum(axis, keepdims=keepdims) + gamma(max(n - 1, 0)) * magnitude
        return Ball(self.v.sum(axis, keepdims=keepdims), e, either(free, over) if over.any() else free)

    # -- elementary functions, of which a relative error is stated

    def _function(self, value, e):
        return Ball(value, e + now.function * np.abs(value), self.free)

    def exp(self):
        value = np.exp(self.v)
        return self._function(value, value * np.expm1(self.e))

    def log(self):
        room = self.v - self.e
        return self._function(np.log(self.v), np.where(self.e > 0, np.where(room > 0, self.e / room, np.inf), 0))

    def log1p(self):
        return self._function(np.log1p(self.v), self.e / (1 + self.v - self.e))

    def tanh(self):
        return self._function(np.tanh(self.v), self.e)

    def sigmoid(self):
        value = np.exp(-np.logaddexp(0, -self.v))
        return self._function(value, value * np.expm1(self.e))

    def pow(self, exponent):
        value = np.power(self.v, exponent.v)
        slope = np.where(exponent.e > 0, np.abs(np.log(np.abs(self.v))) * exponent.e, 0)
        return self._function(value, np.abs(value) * np.expm1(slope))

    # -- moving and choosing elements

    def moved(self, move):
        free = self.free if self.free is False else move(np.broadcast_to(self.free, self.v.shape))
        return Ball(move(self.v), move(self.e), free, self.stored)

    def largest(self, axis=-1):
        return Ball(self.v.max(axis, keepdims=True), self.e.max(axis, keepdims=True), False, self.stored)

    def where(self, condition, other):
        free = either(self.free, other.free)
        return Ball(np.where(condition, self.v, other.v), np.where(condition, self.e, other.e), free, self.stored and other.stored)


def ball(x):
    """A number becomes a constant, rounded once where FP32 does not hold it."""
    if isinstance(x, Ball):
        return x
    x = np.asarray(x, np.float64)
    exact = (x == x.astype(np.float32)) | (now.unit < FORMATS["f32"].unit)
    return Ball(x, np.where(exact, 0, now.unit * np.abs(x)))


def exact(values):
    return Ball(values, 0.0, False, True)


def widened(formula, *balls):
    """A formula with elementary functions: computed in FP64, and rounded once."""
    wide = dataclasses.replace(now, unit=FORMATS["f64"].unit, tiny=0.0, largest=FORMATS["f64"].largest)
    with arithmetic(wide):
        result = formula(*balls)
    return result.rounded()


def accumulated(value, magnitude, count, arity, free=False):
    """Sums of `count` products of `arity` factors each, whose magnitudes add up to `magnitude`; a sum of one term is that term."""
    roundings = np.maximum(count - 1, 0) + (count > 0) * (arity - 1)
    over = magnitude > now.largest
    # A product below the normal range errs by half the smallest subnormal besides.
    e = gamma(roundings) * magnitude + (arity > 1) * count * now.tiny
    return Ball(value, e, either(free, over) if over.any() else free)
