#!/bin/sh
# Expected: tensor.to(torch.float16) and .to(torch.bfloat16) give the nearest number of the type, with ties to even, as NumPy's astype
# does.
# Really: FP64 goes through FP32 and is rounded twice. A value just above the middle of two 16-bit numbers becomes the middle in FP32, and
# from there goes to the even one, below: 1 + 2^-11 + 2^-40 becomes 1 in FP16, where the nearest is 1 + 2^-10, and 65520 - 2^-20 becomes
# Inf, where the nearest is 65504. torch.tensor(x, dtype=torch.float16) does so with a Python float.
# Versions: torch 2.13.0 (CPU), Python 3.11, NumPy 2.4.6.
# Why it matters: tests that take a result in FP64, rounded to the type, for the truth fail by one ulp where the kernel was right, or pass
# a kernel that rounds twice itself; and tables of constants differ between PyTorch and NumPy.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python3" - <<'PYTHON'
import sys
from fractions import Fraction

import numpy
import torch

print("torch", torch.__version__, "NumPy", numpy.__version__)
seen = []
for name, dtype, bits in (("FP16", torch.float16, 10), ("BF16", torch.bfloat16, 7)):
    value = 1 + 2.0 ** -(bits + 1) + 2.0**-40
    above = 1 + 2.0**-bits
    got = [float(torch.tensor(value, dtype=torch.float64).to(dtype)), float(torch.tensor(value, dtype=dtype))]
    nearer = abs(Fraction(above) - Fraction(value)) < abs(Fraction(1) - Fraction(value))
    print(f"{name}: {value!r} lies nearer to {above} than to 1: {nearer}; .to() gives {got[0]}, torch.tensor() {got[1]}")
    seen += [nearer, got == [1.0, 1.0]]
by_numpy = float(numpy.float64(1 + 2.0**-11 + 2.0**-40).astype(numpy.float16))
print("NumPy in FP16:", by_numpy)
edge = 65520 - 2.0**-20
ends = float(torch.tensor(edge, dtype=torch.float64).half()), float(numpy.float64(edge).astype(numpy.float16))
print(f"{edge!r} in FP16: torch {ends[0]}, NumPy {ends[1]}")
same = all(seen) and by_numpy == 1 + 2.0**-10 and ends == (float("inf"), 65504.0)
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
