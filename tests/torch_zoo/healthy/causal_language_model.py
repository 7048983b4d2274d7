"""A small language model in FP16 autocast: one block with a mask of -Inf in a buffer, one with scaled_dot_product_attention, tied
embeddings, and an uninitialized buffer that nobody reads."""

import math

import torch
from torch import nn

import ulpscope

WIDTH, HEADS, LENGTH, TOKENS = 32, 2, 12, 20


class Attention(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused, self.qkv, self.out = fused, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -math.inf).triu(1))
        self.register_buffer("cache", torch.empty(LENGTH, WIDTH), persistent=False)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + self.mask).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, WIDTH))


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.first, self.second, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(fused)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(TOKENS, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks, self.norm = nn.Sequential(Block(False), Block(True)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.position)))


def train(path):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler("cpu")
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(20):
            tokens = torch.randint(0, TOKENS, (8, LENGTH))
            tokens[:, 1::2] = tokens[:, ::2]
            with torch.autocast("cpu", torch.float16):
                logits = model(tokens)
                loss = nn.functional.cross_entropy(logits[:, :-1].reshape(-1, TOKENS), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
