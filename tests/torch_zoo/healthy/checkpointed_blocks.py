"""Residual blocks with dropout under torch.utils.checkpoint, in BF16 autocast."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ulpscope


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.feed = nn.LayerNorm(32), nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))

    def forward(self, x):
        return x + self.feed(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.head = nn.Linear(10, 32), nn.ModuleList(Block() for _ in range(3)), nn.Linear(32, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def train(path):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(30):
            x = torch.randn(32, 10)
            with torch.autocast("cpu", torch.bfloat16):
                prediction = model(x).squeeze(1)
            loss = nn.functional.smooth_l1_loss(prediction.float(), x[:, 0].abs() + x[:, 1])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
