#!/bin/sh
# Expected: tensor.to(dtype, memory_format=torch.contiguous_format) is contiguous, as tensor.clone(memory_format=torch.contiguous_format) is.
# Really: it is where the type changes. Where the tensor has that type already, the tensor itself comes back, with its strides: the memory
# format alone asks for no copy. So what the same line returns is contiguous or not by the type of what it was given.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: code that hands data_ptr() of the result to a kernel, as in "give me FP32, one element behind the other", works under
# autocast, where the input is FP16, and reads other elements in an FP32 run: no error, other numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/python3" -W ignore - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)
columns = torch.arange(8.0).reshape(4, 2)
seen = []
for given in (columns[:, 0].half(), columns.half()[:, 0], columns[:, 0]):
    to = given.to(torch.float32, memory_format=torch.contiguous_format)
    cloned = given.clone(memory_format=torch.contiguous_format)
    print(f"{given.dtype}, strides {given.stride()}: .to(float32) has strides {to.stride()}, .clone() {cloned.stride()}")
    seen.append((to.is_contiguous(), cloned.is_contiguous()))
same = seen == [(True, True), (True, True), (False, True)]
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
