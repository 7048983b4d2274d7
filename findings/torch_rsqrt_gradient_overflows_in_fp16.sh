#!/bin/sh
# Expected: the gradient of torch.rsqrt(x) in FP16 is -1/2 x^(-3/2), rounded to FP16, and infinite only where that is beyond 65,504: below
# x = 3.9e-4.
# Really: the cube of the result is computed in FP16 before it is halved, so that the gradient is -Inf from x = 6.1e-4 down, where the
# true one, -33,198, is a number of FP16. The result itself, 40.5, says nothing of it.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: x * rsqrt(mean(x^2) + eps), RMS norm by hand, has Inf as the gradient of a row of zeros for eps up to 6e-4 in FP16, and the
# usual ones are 1e-5 to 1e-8. The forward pass is finite, so that a gradient scaler takes it for a loss scale that is too large and halves
# that in each such step. Computing the norm in FP32 mends it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/python3" -W ignore - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)
seen = []
for value in (7e-4, 6.1e-4, 5e-4, 4e-4):
    x = torch.tensor(value, dtype=torch.float16, requires_grad=True)
    y = torch.rsqrt(x)
    y.backward()
    exact = -0.5 * x.detach().double().item() ** -1.5
    nearest = torch.tensor(exact).half().item()
    print(f"x {x.item():.3g}: rsqrt {y.item():.4g}, gradient {x.grad.item():,.6g}; exact {exact:,.6g}, in FP16 {nearest:,.6g}")
    seen.append((x.grad.item() == float("-inf"), nearest > float("-inf")))
same = seen == [(False, True), (True, True), (True, True), (True, True)]
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
