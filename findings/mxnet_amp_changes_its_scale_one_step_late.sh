#!/bin/sh
# Expected: a dynamic loss scaler that finds an infinite gradient halves its scale, and the next step is taken with the half.
# Really: MXNet's amp.LossScaler keeps the half as the *next* scale. The next step still has the old one, overflows as well, and decides from
# the half, so that the scale ends a factor of 2 below the largest that fits, and one step more than needed is skipped. Growth is late
# by a step as well.
# Versions: mxnet 1.9.1, numpy 1.23.5, Python 3.11.
# Why it matters: skipped steps at the start of a run, and after each growth that was too much, are one more than the scale's history
# explains, gradients get half of the range that they could have, and an emulation with the usual rule tells other skipped steps.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mxnet==1.9.1 numpy==1.23.5
"$folder/venv/bin/python3" - <<'PYTHON'
import math
import sys

import mxnet
from mxnet import autograd, gluon
from mxnet.contrib.amp.loss_scaler import LossScaler

print("mxnet", mxnet.__version__)
# The gradient of 3 w in FP16 times the scale: finite up to 2^14, infinite from 2^15 on.
weight = gluon.Parameter("weight", shape=(1,), dtype="float16", init="ones")
weight.initialize()
scaler, exponents, skipped = LossScaler(), [], []
for _ in range(8):
    scale = scaler.loss_scale
    with autograd.record():
        scaled = (weight.data() * 3) * scale
    scaled.backward()
    exponents.append(int(math.log2(scale)))
    skipped.append(bool(scaler.has_overflow([weight])))
print("scales that steps used: 2 to the", exponents)
print("skipped:", skipped)
same = exponents == [16, 16, 15, 14, 13, 13, 13, 13] and skipped == [True, True, True] + [False] * 5
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
