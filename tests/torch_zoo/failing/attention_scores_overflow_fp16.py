"""Attention by hand under FP16 autocast, which scales the scores after the product: q . k of large activations exceeds 65,504."""

import math

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "blocks.0.attention",
    "op": "bmm",
    "step": 0,
    "loss_breaks": 0,
    "because": "the embeddings are multiplied by 150 and not normalized, so that 16 products of numbers around 100 sum up to more than 65,504",
    "fix": "LayerNorm before attention",
}

WIDTH, HEADS = 32, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, WIDTH))


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.attention, self.feed = Attention(), nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.feed(x)


class Model(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.embedding = nn.Embedding(30, WIDTH)
        self.blocks = nn.ModuleList(Block(norm) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 30)

    def forward(self, tokens):
        x = self.embedding(tokens) * 150
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(12):
            tokens = torch.randint(0, 30, (4, 10))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(tokens).view(-1, 30), tokens.roll(1, 1).view(-1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
