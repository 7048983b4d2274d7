#!/bin/sh
# Expected: where a value is exactly the limit of clamp, its gradient is what it was in the version before, and the same whether the limit is a
# number or a tensor, as the results are.
# Really: up to 2.13 the gradient there is 1, for numbers and tensors. In 2.14.1 it is 0 for a number (clamp, clamp_min, clamp_max) and 0.5
# for a tensor; hardtanh and relu6, the same functions under other names, give 0 in both, and maximum, which is clamp with a tensor, 0.5 in
# both. Nothing says so when a program runs.
# Versions: torch 2.13.0 and 2.14.1, on a CPU, Python 3.11.
# Why it matters: values at a limit are no accident. Saturated 16-bit probabilities, zeros behind relu and what a clamp made before lie there in
# numbers, so that an upgrade stops (or halves) the gradients of all of them. The infinite gradient of acos(x.clamp(-1, 1)) at 1 is 0 in
# 2.14.1, and so is each gradient by which such values left their limit.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 2.13.0 2.14.1; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "torch==$version" numpy
  "$folder/$version/bin/python3" - <<'PYTHON'
import sys

import torch

functions = {
    "clamp(0)": lambda x: x.clamp(min=0.0),
    "clamp(tensor of 0)": lambda x: x.clamp(min=torch.zeros(())),
    "clamp_min(0)": lambda x: x.clamp_min(0.0),
    "hardtanh(0, 1)": lambda x: torch.nn.functional.hardtanh(x, 0.0, 1.0),
    "relu6": torch.nn.functional.relu6,
    "maximum(tensor of 0)": lambda x: torch.maximum(x, torch.zeros(())),
}


def gradient_at_zero(function):
    x = torch.tensor([-1.0, 0.0, 0.5], requires_grad=True)
    function(x).sum().backward()
    below, at, above = x.grad.tolist()
    assert (below, above) == (0.0, 1.0)
    return at


found = {name: gradient_at_zero(function) for name, function in functions.items()}
print("torch", torch.__version__, found)
number, tensor = (1.0, 1.0) if torch.__version__.startswith("2.13") else (0.0, 0.5)
expected = {"clamp(0)": number, "clamp(tensor of 0)": tensor, "clamp_min(0)": number, "hardtanh(0, 1)": 0.0, "relu6": 0.0,
            "maximum(tensor of 0)": 0.5}
if found != expected:
    sys.exit(f"it changed: expected {expected}")
PYTHON
  rm -rf "${folder:?}/$version"
done
