"""The formats and roundings of docs/numerics.md and docs/emulation.md: largest numbers, and which magnitudes become zero."""

import dataclasses
import math

import numpy

LIMIT = 0.01  # of a tensor's nonzero elements that may be flushed


@dataclasses.dataclass(frozen=True)
class Format:
    name: str  # as reports have it
    fraction_bits: int
    smallest_normal: float
    largest: float

    @property
    def smallest_subnormal(self):
        return math.ldexp(self.smallest_normal, -self.fraction_bits)

    @property
    def felt(self):
        """The part of a norm above which flushing is felt: what rounding to nearest changes anyway, or a hundredth."""
        return max(math.ldexp(1.0, -self.fraction_bits - 1), 0.01)

    @property
    def ulp_of_largest(self):
        return math.ldexp(1.0, math.frexp(self.largest)[1] - 1 - self.fraction_bits)


FORMATS = {
    "f64": Format("fp64", 52, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    "f32": Format("fp32", 23, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
    "f16": Format("fp16", 10, 2.0**-14, 65504.0),
    "bf16": Format("bf16", 7, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
    "e4m3": Format("e4m3", 3, 2.0**-6, 448.0),
    "e5m2": Format("e5m2", 2, 2.0**-14, 57344.0),
}
FLOATS = tuple(FORMATS)
PLAINLY_NARROW = ("f16", "bf16")
QUANTIZED = ("e4m3", "e5m2")
NARROW = PLAINLY_NARROW + QUANTIZED


def below(x):
    return float(numpy.nextafter(x, 0.0))


def flushed_up_to(fmt, mode="rne", flushes=False):
    """(all up to here become zero, some up to here do): the table of "What a rounding loses"."""
    tiny, normal = fmt.smallest_subnormal, fmt.smallest_normal
    if flushes:
        return {
            "rne": (below(normal - tiny / 2),) * 2,
            "rna": (below(normal - tiny / 2),) * 2,
            "rz": (below(normal),) * 2,
            "ro": (below(normal),) * 2,
            "ru": (normal - tiny, below(normal)),
            "rd": (normal - tiny, below(normal)),
            "sr": (below(normal - tiny + math.ldexp(tiny, -24)), below(normal)),
        }[mode]
    return {
        "rne": (tiny / 2, tiny / 2),
        "rna": (below(tiny / 2),) * 2,
        "rz": (below(tiny),) * 2,
        "ro": (0.0, 0.0),
        "ru": (0.0, below(tiny)),
        "rd": (0.0, below(tiny)),
        "sr": (below(math.ldexp(tiny, -24)), below(tiny)),
    }[mode]


def beyond_from(fmt, mode="rne"):
    """(some from here on go beyond the largest number, all do)."""
    ulp = fmt.ulp_of_largest
    power, above = fmt.largest + ulp, float(numpy.nextafter(fmt.largest, math.inf))
    # A tie goes to the even encoding, which of these formats only E4M3's largest number has: 448 is 1.75 * 2^8 with 3 fraction bits.
    is_even = fmt.largest / ulp % 2 == 0
    tie = fmt.largest + ulp / 2
    return {
        "rne": (float(numpy.nextafter(tie, math.inf)) if is_even else tie,) * 2,
        "rna": (fmt.largest + ulp / 2,) * 2,
        "rz": (power, power),
        "ro": (above, above) if is_even else (power, power),
        "ru": (above, power),
        "rd": (above, power),
        "sr": (fmt.largest + math.ldexp(ulp, -24), power),
    }[mode]
