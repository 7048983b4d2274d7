"""Rotary angles are a product of positions and frequencies, and autocast multiplies it in BF16: from 256 on positions are even numbers."""

import torch
from torch import nn
from torch.nn import functional

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["precision.values_merged"],
    "module": "attention",
    "op": "_to_copy",
    "step": 0,
    "loss_breaks": None,
    "says": ["BF16 has all whole numbers up to 256", "outside of autocast"],
    "because": "position_ids.float() is cast to BF16 for the product: neighbours share an angle, of 512 positions a quarter",
    "fix": "the product outside of autocast",
}


class Attention(nn.Module):
    def __init__(self, width, fixed):
        super().__init__()
        self.qkv, self.out, self.norm, self.fixed = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width), fixed
        self.register_buffer("frequencies", 1.0 / 100 ** (torch.arange(0, width, 2).float() / width), persistent=False)

    def angles(self, positions):
        with torch.autocast("cpu", enabled=False) if self.fixed else torch.enable_grad():
            angles = positions[0, :, None].float() @ self.frequencies[None, :]
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    @staticmethod
    def rotated(x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def forward(self, x, positions):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        cos, sin = self.angles(positions)
        mixed = functional.scaled_dot_product_attention(self.rotated(q, cos, sin), self.rotated(k, cos, sin), v.float(), is_causal=True)
        return x + self.out(mixed)


class Model(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.tokens, self.attention, self.head = nn.Embedding(32, 16), Attention(16, fixed), nn.Linear(16, 32)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return self.head(self.attention(self.tokens(tokens), positions))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(6):
            tokens = torch.randint(0, 32, (2, 512))
            with torch.autocast("cpu", torch.bfloat16):
                loss = functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
