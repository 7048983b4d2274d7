#!/bin/sh
# Expected: a GradScaler never lets an optimizer step with gradients that are NaN or Inf; it skips the step and halves the scale.
# Really: the scale has no floor. It reaches 0 after 166 skipped steps from the default 2^16, and from 2^-128 down its inverse is Inf in
# FP32. The scaler looks for NaN and Inf in the scaled gradients, before it multiplies them by the inverse: finite ones pass, become 0 *
# Inf = NaN, or Inf, and the step is taken. The weights are NaN after the first clean batch, and the scale stays 0.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: a stretch of batches with NaN, as of a data source that broke for some minutes, looks harmless while every step is
# skipped. The weights are lost when it is over, by the first batch that is well, and a checkpoint of these minutes holds a scale from
# which every continued run is lost.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python3" - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)


def step(weight, scaler, x):
    """Whether a step was taken with the loss weight * x."""
    optimizer = torch.optim.SGD([weight], 0.5)
    before = weight.detach().clone()
    optimizer.zero_grad()
    scaler.scale((weight * x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return not torch.equal(before, weight.detach())


weight, scaler = torch.nn.Parameter(torch.ones(2)), torch.amp.GradScaler("cpu")
bad, taken = 0, 0
while scaler.get_scale() > 0:
    bad, taken = bad + 1, taken + step(weight, scaler, float("nan"))
print(f"batches with NaN: {bad}, steps taken: {taken}, weight {weight.tolist()}, scale {scaler.get_scale()}")
clean = step(weight, scaler, 1.0)
print(f"a clean batch: step taken: {clean}, weight {weight.tolist()}, scale {scaler.get_scale()}")
after = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
for each, exponent in zip(after, (-127, -128)):
    step(each, torch.amp.GradScaler("cpu", init_scale=2.0**exponent), 1.0)
    print(f"a clean batch at scale 2^{exponent}: weight {each.tolist()}")
same = (bad, taken, clean) == (166, 0, True) and bool(weight.isnan().all()) and scaler.get_scale() == 0.0
same = same and after[0].tolist() == [0.5] and after[1].tolist() == [float("-inf")]
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
