"""Formats of numbers: what rounding to one does to a tensor's elements, exactly, and the words for numbers."""

from typing import Any, Dict, List, NamedTuple, Tuple

import torch


class Format(NamedTuple):
    """A format: the number of its fraction bits, and the exponents of its largest and of its smallest normal number."""

    name: str
    fraction: int
    largest_exponent: int
    smallest_exponent: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - 2.0**-self.fraction) * 2.0**self.largest_exponent

    @property
    def overflows_from(self) -> float:
        """The least magnitude that rounds to Inf: a tie, which goes up, as the largest number is odd."""
        return (2 - 2.0 ** -(self.fraction + 1)) * 2.0**self.largest_exponent

    @property
    def flushed_to(self) -> float:
        """The largest magnitude that rounds to 0: a tie, which goes to the even 0."""
        return 2.0 ** (self.smallest_exponent - self.fraction - 1)

    @property
    def normal_from(self) -> float:
        """The least magnitude that rounds to a normal number: a tie, which goes up, as the largest subnormal number is odd."""
        return 2.0**self.smallest_exponent - self.flushed_to


FP32 = Format("FP32", 23, 127, -126)
BF16 = Format("BF16", 7, 127, -126)
FP16 = Format("FP16", 10, 15, -14)

# The format and the integer type of its encodings, by the type of a tensor.
_STORED: Dict[torch.dtype, Tuple[Format, torch.dtype, int]] = {
    torch.float32: (FP32, torch.int32, 0x7FFFFFFF),
    torch.bfloat16: (BF16, torch.int16, 0x7FFF),
    torch.float16: (FP16, torch.int16, 0x7FFF),
}
# The names of types; tensors of others, as integers and complex numbers, are not looked at.
NAMES: Dict[torch.dtype, str] = {
    torch.float64: "FP64", torch.float32: "FP32", torch.bfloat16: "BF16", torch.float16: "FP16",
    torch.float8_e4m3fn: "E4M3", torch.float8_e5m2: "E5M2", torch.float8_e4m3fnuz: "E4M3FNUZ", torch.float8_e5m2fnuz: "E5M2FNUZ"}

# Tensors are looked at in pieces of so many elements: an FP64 copy takes 2 MiB, which stays in a cache.
_PIECE = 1 << 18


def pieces(*tensors: torch.Tensor) -> List[Tuple[torch.Tensor, ...]]:
    """The elements of tensors of one shape, in pieces that are views where the memory allows it."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    return [tuple(each[start:start + _PIECE] for each in flat) for start in range(0, flat[0].numel(), _PIECE)]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values in a type that holds them exactly and computes fast: FP32, or FP64 of FP64 ones."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def all_finite(values: torch.Tensor) -> bool:
    """Whether there is neither NaN nor Inf: of NaN both extremes are NaN."""
    return values.numel() == 0 or all(bool(each.isfinite()) for each in values.aminmax())


class Magnitudes(NamedTuple):
    """What a tensor holds, and what rounding its elements to FP16 and BF16 would do. Squares are sums in FP64."""

    elements: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    largest: float = 0.0  # of the finite magnitudes
    smallest: float = 0.0  # of those that are finite and not 0; 0: there is none
    squares: float = 0.0  # of the finite values
    overflow: Dict[str, int] = {}  # finite values that round to Inf
    flushed: Dict[str, int] = {}  # nonzero values that round to 0
    flushed_squares: Dict[str, float] = {}
    subnormal: Dict[str, int] = {}  # values that round to a subnormal number, which is not 0

    @property
    def nonzero(self) -> int:
        """How many are finite and not 0."""
        return self.elements - self.nan - self.inf - self.zeros


def _add(a: Dict[str, Any], b: Dict[str, Any]) -> Dict[str, Any]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def together(a: Magnitudes, b: Magnitudes) -> Magnitudes:
    """What two tensors hold."""
    smallest = min((each.smallest for each in (a, b) if each.smallest), default=0.0)
    return Magnitudes(a.elements + b.elements, a.nan + b.nan, a.inf + b.inf, a.zeros + b.zeros, max(a.largest, b.largest), smallest,
                      a.squares + b.squares, _add(a.overflow, b.overflow), _add(a.flushed, b.flushed),
                      _add(a.flushed_squares, b.flushed_squares), _add(a.subnormal, b.subnormal))


def magnitudes(tensor: torch.Tensor) -> Magnitudes:
    """What a floating-point tensor on the CPU holds."""
    total = Magnitudes()
    for (piece,) in pieces(tensor):
        total = together(total, _magnitudes(wide(piece).abs()))
    return total


def _magnitudes(values: torch.Tensor) -> Magnitudes:
    count, nan, inf = values.numel(), 0, 0
    if not all_finite(values):
        nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
        values = values[values.isfinite()]
    if values.numel() == 0:
        return Magnitudes(count, nan, inf)
    zeros = values.numel() - int(values.count_nonzero())
    if zeros:
        values = values[values != 0]
    if values.numel() == 0:
        return Magnitudes(count, nan, inf, zeros)
    smallest, largest = (float(each) for each in values.aminmax())
    squares = float(values.double().square().sum())
    overflow, flushed, flushed_squares, subnormal = {}, {}, {}, {}
    for form in (FP16, BF16):  # the limits are numbers of FP32, so that comparisons in it are exact
        name = form.name
        overflow[name] = int((values >= form.overflows_from).sum()) if largest >= form.overflows_from else 0
        flushed[name], flushed_squares[name] = 0, 0.0
        if smallest <= form.flushed_to:
            lost = values[values <= form.flushed_to]
            flushed[name], flushed_squares[name] = lost.numel(), float(lost.double().square().sum())
        below = int((values < form.normal_from).sum()) if smallest < form.normal_from else 0
        subnormal[name] = below - flushed[name]
    return Magnitudes(count, nan, inf, zeros, largest, smallest, squares, overflow, flushed, flushed_squares, subnormal)


def can_be_lost(dtype: torch.dtype) -> bool:
    """Whether stays() knows the type."""
    return dtype in _STORED


def stays(weight: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Where w + d, rounded once to the weight's type, to nearest with ties to even, is w.

    `weight` is in FP32, BF16 or FP16, `change` in FP64; NaN and Inf of either give False. A change moves a weight that is larger than half
    of the distance to the neighbour on its side, or that is equal to it where the weight's significand is odd. These halves are numbers of
    FP64, so that the comparison is exact, and w + d is never formed."""
    form = _STORED[weight.dtype][0]
    # A normal number moves where the change exceeds its whole ulp, which is at most |w| 2^-f: most do in FP32, and are left out.
    value = weight.double().abs()
    near = (change.abs() <= value * 2.0**-form.fraction) | (value < 2.0**form.smallest_exponent)
    if 2 * int(near.count_nonzero()) > near.numel():
        return _stays(weight.contiguous(), change)
    result = torch.zeros_like(near)
    result[near] = _stays(weight[near], change[near])
    return result


def _stays(weight: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    form, integers, mask = _STORED[weight.dtype]
    encoding = weight.view(integers) & mask
    value = weight.double().abs()
    up = (encoding + 1).view(weight.dtype).double()
    up = torch.where(value == form.largest, 2.0 ** (form.largest_exponent + 1), up)
    down = torch.where(encoding == 0, encoding + 1, encoding - 1).view(weight.dtype).double()
    gap = torch.where((weight >= 0) == (change >= 0), up - value, value - down)
    gap = torch.where(encoding == 0, up, gap)
    size = 2 * change.abs()
    lost = (size < gap) | ((size == gap) & (encoding % 2 == 0))
    if not (all_finite(weight) and all_finite(change)):
        lost &= value.isfinite() & change.isfinite()
    return lost


def round_once(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """FP32 or narrower values in another type, rounded once: PyTorch would round FP64 ones to FP32 first."""
    assert values.dtype is not torch.float64
    return values.to(dtype)


def said(number: float) -> str:
    """A number as sentences have it: four digits, thousands with commas."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Inf" if number > 0 else "-Inf"
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.4g}" if abs(number) < 1e4 else f"{number:,.0f}" if abs(number) < 1e9 else f"{number:.4g}"


def power(number: float) -> str:
    """A scale: 2^k where it is a power of two, else as said() has it."""
    mantissa, exponent = torch.frexp(torch.tensor(number, dtype=torch.float64))
    return f"2^{int(exponent) - 1}" if float(mantissa) == 0.5 and abs(int(exponent)) > 1 else said(number)


def share(part: int, whole: int) -> str:
    """A share in percent, which is 0% and 100% only where it is so."""
    if whole == 0 or part == 0:
        return "0%"
    if part == whole:
        return "100%"
    percent = 100 * part / whole
    if percent < 0.01:
        return "less than 0.01%"
    if percent > 99.9:
        return "more than 99.9%"
    return f"{percent:.2g}%" if percent < 10 else f"{percent:.3g}%"


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 weight, 2 weights."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
