#!/bin/sh
# Expected: the schema of an ATen op says which arguments it writes (Tensor(a!)), so that whoever looks at ops from outside, as a
# TorchDispatchMode, knows what changed.
# Really: aten::native_batch_norm in training writes running_mean and running_var, and its schema has them as plain inputs; their version
# counters are not raised either, so that no check of versions sees the write. aten::_native_batch_norm_legit says it.
# Versions: torch 2.13.0 (CPU), Python 3.11.
# Why it matters: running statistics are where batch norm keeps its state. A recorder that goes by schemas, or by versions, takes them for
# unchanged, and shows values of before the call, or calls a NaN in them one that nobody made.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python3" - <<'PYTHON'
import sys

import torch

print("torch", torch.__version__)
op = torch.ops.aten.native_batch_norm.default
written = [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
legit = torch.ops.aten._native_batch_norm_legit.default
written_legit = [a.name for a in legit._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
mean, var = torch.zeros(3), torch.ones(3)
before = mean.clone(), mean._version
x = torch.arange(24.0).reshape(8, 3)
op(x, None, None, mean, var, True, 0.1, 1e-5)
print("native_batch_norm: arguments that the schema says are written:", written)
print("_native_batch_norm_legit:", written_legit)
print("running_mean before:", before[0].tolist(), "after:", mean.tolist())
print("version of running_mean before:", before[1], "after:", mean._version)
same = written == [] and written_legit == ["running_mean", "running_var"] and not torch.equal(before[0], mean)
same = same and before[1] == mean._version
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
