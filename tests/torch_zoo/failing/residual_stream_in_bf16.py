"""Embeddings are scaled up, and the stream that blocks add to is in BF16: what the blocks compute is below half a unit of it."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["precision.addend_lost"],
    "op": "add_",
    "step": 0,
    "loss_breaks": None,
    "because": "BF16 has steps of 2 and 4 where the stream is in the hundreds, and a block adds less than 1",
    "fix": "the stream in FP32",
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            out = self.down(functional.silu(self.up(self.norm(x)))).to(x.dtype)
        out += x
        return out


class Model(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.tokens, self.blocks = dtype, nn.Embedding(24, 16), nn.Sequential(Block(16), Block(16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 24)

    def forward(self, tokens):
        x = (self.tokens(tokens) * 400).to(self.dtype)
        return self.head(self.norm(self.blocks(x).float()))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(torch.float32 if fixed else torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            tokens = torch.randint(0, 24, (8, 12))
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), (tokens * 5 % 24).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
