#!/bin/sh
# Expected: an optimizer's step reads p.grad and leaves it as it is, by whichever of its implementations.
# Really: torch.optim.SGD with nesterov=True and foreach=True, which is the default on a GPU, adds the momentum to the gradients in place. After
# the step p.grad is the gradient plus momentum times the buffer; with foreach=False, and without Nesterov, it is the gradient.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: what reads p.grad behind the step, as the logged norm of gradients, a count of gradients that are zero, or a comparison of two
# devices, sees another tensor on a GPU than on a CPU; and a training that accumulates into gradients that it kept goes on from a wrong one.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python3" - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)


def gradient_after_two_steps(nesterov, foreach):
    """A weight of 1 whose gradient is 2 in both steps, with momentum 0.5: the gradient as the second step leaves it."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], 0.1, momentum=0.5, nesterov=nesterov, foreach=foreach)
    for _ in range(2):
        weight.grad = torch.full((1,), 2.0)
        optimizer.step()
    return weight.grad.item(), weight.item()


expected = {}
for nesterov in (False, True):
    for foreach in (False, True):
        expected[nesterov, foreach] = gradient_after_two_steps(nesterov, foreach)
        print(f"nesterov={nesterov} foreach={foreach}: gradient, weight after the second step:", *expected[nesterov, foreach])
# The buffer is 2 after the first step, and 0.5 * 2 + 2 = 3 after the second: the gradient becomes 2 + 0.5 * 3.
kept = [expected[nesterov, foreach][0] for nesterov, foreach in ((False, False), (False, True), (True, False))]
if kept != [2.0, 2.0, 2.0] or expected[True, True][0] != 3.5 or expected[True, True][1] != expected[True, False][1]:
    sys.exit("changed: see above")
print("as described above")
PYTHON
