"""Two processes that train one model in BF16 under autocast: `torchrun --standalone --nproc-per-node 2 ddp.py`.

Each process writes a file of its own into the folder ddp, and the report reads them together."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ulpscope


def make_data(count):
    """Sums of waves, and the heights of the waves."""
    generator = torch.Generator().manual_seed(1)
    heights = torch.rand(count, 3, generator=generator)
    waves = torch.stack([torch.sin(torch.arange(32) / period) for period in (1.5, 3.0, 7.0)])
    return TensorDataset(heights @ waves + 0.05 * torch.randn(count, 32, generator=generator), heights)


torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
rank = torch.distributed.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 3)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
data = make_data(640)
sampler = DistributedSampler(data)
loader = DataLoader(data, 16, sampler=sampler)

with ulpscope.record("ddp", model, optimizer, overwrite=True):
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

torch.distributed.barrier()  # the report is read when all processes have closed their files
if rank == 0:
    print(ulpscope.report("ddp"))
torch.distributed.destroy_process_group()
