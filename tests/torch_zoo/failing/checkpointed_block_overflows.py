"""Residual blocks under torch.utils.checkpoint and FP16 autocast: the second one gives values beyond 65,504."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["model.values_grow"],
    "module": "blocks.2.0",
    "op": "addmm",
    "says": ["`blocks.2.2` (addmm)"],
    "step": 0,
    "loss_breaks": 0,
    "because": "each layer multiplies by some 6, and the last one of the third block leaves FP16, in the forward pass",
    "fix": "a LayerNorm at the start of each block",
}


class Model(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(4):
            block = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
            for layer in (block[0], block[2]):
                nn.init.normal_(layer.weight)
            self.blocks.append(nn.Sequential(nn.LayerNorm(32), block) if norm else block)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x / x.detach().abs().amax())


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(12):
            x = torch.randn(16, 32)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
