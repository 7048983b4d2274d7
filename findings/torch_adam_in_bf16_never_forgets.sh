#!/bin/sh
# Expected: Adam's second moment is a moving average, in any type: of gradients that stay small from some step on, it becomes small.
# Really: of BF16 parameters PyTorch keeps it in BF16, whose numbers lie 2^-8 to 2^-7 of their size apart, and one step of decay by the
# default beta2 = 0.999 takes less than half of that: 0.999 v rounds back to v for every normal v. With gradients 0 it has the same bits
# after 10,000 steps, where 4.5e-5 of it should be left. The default, the single-tensor, the foreach and the fused implementation all do
# so.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: each weight goes on with the step size that its largest gradients gave it, as of the warm-up or of one spike, and
# nothing shows it: no NaN, no zero, no warning. With beta2 = 0.99 or states in FP32 it is a moving average.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python3" - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)
torch.set_num_threads(1)


def left(dtype, beta2, steps=10_000, **options):
    """The part of second moments that is left after steps without a gradient: the least and the most of 256 ones."""
    weight = torch.nn.Parameter(torch.ones(256, dtype=dtype))
    optimizer = torch.optim.AdamW([weight], betas=(0.9, beta2), **options)
    weight.grad = torch.linspace(1, 2, 256).to(dtype)
    optimizer.step()
    before = optimizer.state[weight]["exp_avg_sq"].double()
    weight.grad = torch.zeros_like(weight)
    for _ in range(steps):
        optimizer.step()
    parts = optimizer.state[weight]["exp_avg_sq"].double() / before
    return float(parts.min()), float(parts.max())


kinds = {"default": {}, "single-tensor": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
stuck = {name: left(torch.bfloat16, 0.999, **options) for name, options in kinds.items()}
for name, parts in stuck.items():
    print(f"BF16, beta2 0.999, {name}: {parts[0]:g} to {parts[1]:g} of the second moments are left")
fp32, lower = left(torch.float32, 0.999), left(torch.bfloat16, 0.99)
print(f"FP32, beta2 0.999: {fp32[0]:g} to {fp32[1]:g}")
print(f"BF16, beta2 0.99: {lower[0]:g} to {lower[1]:g}")
values = torch.arange(0x0080, 0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)  # all positive normal numbers
print("normal BF16 numbers v with 0.999 v == v:", int((values * 0.999 == values).sum()), "of", values.numel())
same = all(parts == (1.0, 1.0) for parts in stuck.values()) and bool((values * 0.999 == values).all())
same = same and 4e-5 < fp32[0] <= fp32[1] < 5e-5 and lower[1] < 1e-3
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
