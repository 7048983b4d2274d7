#!/bin/sh
# Expected: an op of PyTorch that writes its argument has "(a!)" for it in its schema, and is_mutable is true: tools that follow memory, as
# functionalization, dispatch modes and tracers, go by that.
# Really: c10d::allreduce_, broadcast_, _allgather_base_ and _reduce_scatter_base_ have no annotation at all and is_mutable is false, though the
# first two write what they are given and the others their output_tensor.
# Versions: torch 2.13.0 (CPU, gloo, one process), Python 3.11.
# Why it matters: whoever decides by the schema which tensors changed takes what other ranks sent for what was there before: a NaN that an
# all-reduce brought is then blamed on the op that reads the gradient, and a copy kept from before is taken for the value after.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python3" -W ignore - "$folder/store" <<'PYTHON'
import sys

import torch
import torch.distributed as dist

print("torch", torch.__version__)
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
written = torch.zeros(4)
dist.all_gather_into_tensor(written, torch.ones(4))
print("output_tensor of _allgather_base_ after the op:", written.tolist())
seen = [written.tolist() == [1.0] * 4]
for name in ("allreduce_", "broadcast_", "_allgather_base_", "_reduce_scatter_base_"):
    schema = getattr(torch.ops.c10d, name).default._schema
    annotated = [argument.name for argument in schema.arguments if argument.alias_info is not None]
    print(f"c10d::{name}: is_mutable {schema.is_mutable}, annotated arguments {annotated}")
    seen.append(not schema.is_mutable and not annotated)
add = torch.ops.aten.add_.Tensor._schema
print(f"aten::add_: is_mutable {add.is_mutable}")
dist.destroy_process_group()
same = all(seen) and add.is_mutable
print("as described above" if same else "CHANGED: this is no longer so")
sys.exit(0 if same else 1)
PYTHON
