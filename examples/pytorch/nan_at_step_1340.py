"""Two processes that forecast a sensor, in BF16 under autocast, until the loss is NaN: the training of docs/case_study_ddp.md.

`torchrun --standalone --nproc-per-node 2 nan_at_step_1340.py` records into the folder series, with a checkpoint each 100 steps.
With `--name mended --eps 1e-3 --resume series-1300.pt` it goes on from one of them, with a change."""

import argparse

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ulpscope

STEPS, BATCH, WINDOW, AHEAD = 1400, 8, 16, 4


def make_windows():
    """Readings over some days with noise, in windows, and the readings that follow on each. In one window the sensor was off."""
    count = 2 * STEPS * BATCH
    days = torch.arange(count * (WINDOW + AHEAD)) / 48
    noise = torch.randn(len(days), generator=torch.Generator().manual_seed(1))
    windows = (20 + 5 * torch.sin(days) + 2 * torch.sin(7 * days) + noise).view(count, WINDOW + AHEAD)
    windows[3153, :WINDOW] = 0
    return TensorDataset(windows[:, :WINDOW], windows[:, WINDOW:])


class Standardize(nn.Module):
    """Each window with mean 0 and standard deviation 1."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True) + self.eps
        return (x - mean) / deviation, mean, deviation


class Forecast(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.standardize = Standardize(eps)
        self.layers = nn.Sequential(nn.Linear(WINDOW, 32), nn.GELU(), nn.Linear(32, AHEAD))

    def forward(self, x):
        standard, mean, deviation = self.standardize(x)
        return self.layers(standard) * deviation + mean


def train(model, optimizer, loader, first, name):
    total, is_first = 0.0, torch.distributed.get_rank() == 0
    for step, (x, y) in enumerate(loader):
        if step < first:
            continue
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if is_first and (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {total / 100:.3f}", flush=True)
            total = 0.0
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(states, f"{name}-{step + 1}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="series")
    parser.add_argument("--eps", type=float, default=0.0)
    parser.add_argument("--resume", default="")
    given = parser.parse_args()

    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Forecast(given.eps))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if given.resume:
        kept = torch.load(given.resume)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    data = make_windows()
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, seed=0))
    with ulpscope.record(given.name, model, optimizer, level="health", overwrite=True):
        train(model, optimizer, loader, first, given.name)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
