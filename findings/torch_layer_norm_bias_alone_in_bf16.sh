#!/bin/sh
# Expected: a layer norm that runs forward in BF16 runs backward too. On a CPU it takes FP32 parameters beside BF16 values, as autocast
# hands them to it, in both directions.
# Really: with a bias and no weight the forward pass gives a BF16 result, and the backward pass raises "expected scalar type BFloat16 but
# found Float". With a weight and no bias, with both, and with a BF16 bias both passes run.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: a model that trains in FP32 and whose forward pass was tried in BF16 fails in its first backward pass under
# torch.autocast("cpu"), far from the line at fault; and who audits which ops take mixed types cannot go by the forward pass.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python3" - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)


def attempt(weight, bias):
    """The dtype of the result, and what the backward pass raises."""
    x = torch.linspace(-1, 1, 12, dtype=torch.bfloat16).reshape(3, 4).requires_grad_()
    parameters = [None if dtype is None else torch.ones(4, dtype=dtype, requires_grad=True) for dtype in (weight, bias)]
    result = torch.nn.functional.layer_norm(x, (4,), *parameters)
    try:
        result.float().sum().backward()
    except RuntimeError as error:
        return result.dtype, str(error).splitlines()[0]
    return result.dtype, "runs"


fp32, bf16 = torch.float32, torch.bfloat16
seen = {}
for weight, bias in ((fp32, fp32), (fp32, None), (None, bf16), (None, fp32)):
    seen[weight, bias] = attempt(weight, bias)
    print(f"weight {weight}, bias {bias}: forward gives {seen[weight, bias][0]}, backward: {seen[weight, bias][1]}")
failing = seen.pop((None, fp32))
same = failing == (bf16, "expected scalar type BFloat16 but found Float") and all(each == (bf16, "runs") for each in seen.values())
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
