#!/bin/sh
# Expected: elementwise ops in FP32 give the same bits on every CPU, sums and products of matrices apart; torch.add(x, y, alpha=a) is
# x + a * y, and the step of SGD without momentum is w - lr * g.
# Really: with AVX2 or AVX-512 the product and the addition are one fused operation with one rounding, and with the kernels that other CPUs
# get (ATEN_CPU_CAPABILITY=default) there are two. Where the terms cancel, as at 3 times a third of a number, the results are half of their
# norm apart, both in FP32. It is so of add, sub, add_, addcmul and of all three implementations of SGD's step; x + a * y, written out, has two
# roundings everywhere.
# Versions: torch 2.13.0 (CPU), Python 3.11, on an x86-64 CPU with AVX2.
# Why it matters: two runs of one script on two CPUs part at the first update, by no fault of either, and a bit-for-bit comparison names an op
# of which one would swear that it cannot differ. How many roundings an op has is not told by its name and its types.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat > "$folder/add.py" <<'PYTHON'
import sys

import torch

torch.manual_seed(0)
x = torch.randn(65_536)
y = x * 0.3333333
alpha = -2.9999999
# Products of FP32 numbers are exact in FP64, and so the rounding of the sum to FP32 is nearly always the one rounding of a fused operation.
once = (x.double() + y.double() * float(torch.tensor(alpha))).float()
twice = x + y * torch.tensor(alpha)


def sgd(**options):
    weight = torch.nn.Parameter(x.clone())
    weight.grad = y.clone()
    torch.optim.SGD([weight], lr=-alpha, **options).step()
    return weight.detach()


results = {
    "add": torch.add(x, y, alpha=alpha),
    "sub": torch.sub(x, y, alpha=-alpha),
    "add_": x.clone().add_(y, alpha=alpha),
    "addcmul": torch.addcmul(x, y, torch.full_like(x, alpha)),
    "SGD": sgd(foreach=False),
    "SGD foreach": sgd(foreach=True),
    "SGD fused": sgd(fused=True),
}
capability = torch.backends.cpu.get_cpu_capability()
expected = twice if capability == "DEFAULT" else once
apart = float((once - twice).norm() / once.norm())
print(f"torch {torch.__version__}, {capability}: rounded once and twice are {apart:.2g} of their norm apart")
for name, result in results.items():
    print(f"  {name}: {int((result == once).sum())} of 65536 as rounded once, {int((result == twice).sum())} as rounded twice")
if apart < 0.1 or not all(torch.equal(result, expected) for result in results.values()):
    sys.exit("PyTorch behaves otherwise now")
print("DEFAULT" if capability == "DEFAULT" else "VECTORIZED")
PYTHON
plain=$(ATEN_CPU_CAPABILITY=default "$folder/venv/bin/python3" "$folder/add.py") || { echo "$plain"; exit 1; }
vectorized=$(ATEN_CPU_CAPABILITY=avx2 "$folder/venv/bin/python3" "$folder/add.py") || { echo "$vectorized"; exit 1; }
printf '%s\n%s\n' "$plain" "$vectorized"
case "$vectorized" in
*VECTORIZED) echo "as described: one rounding with AVX2, two without" ;;
*) echo "this CPU has no AVX2: nothing to compare" ; exit 1 ;;
esac
