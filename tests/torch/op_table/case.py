"""What a row is, and how inputs are drawn."""

import dataclasses
import math
from typing import Callable, Optional

import numpy as np
import torch

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
    special: bool = True  # may have NaN, Inf and the like


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
    formula_decides: bool = False  # NaN and Inf are the formula's where PyTorch composes, saturates or multiplies by 0

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


TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
         "boolean": torch.bool}
