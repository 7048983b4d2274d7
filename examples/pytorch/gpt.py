"""A small GPT in FP16 under autocast with a GradScaler, on sentences that it makes up: the training of docs/pytorch_tour.md.

`python gpt.py` writes gpt.h5, the recording, and gpt.pt, the checkpoint. Its loss stays finite, and does not get where it should.
`python gpt.py --name eps --eps 1e-6` and `python gpt.py --name mended --norm-in-fp32` are two attempts to mend that."""

import argparse
import random

import torch
from torch import nn

import ulpscope

PADDING, LENGTH, BATCH, WIDTH, HEADS = 0, 32, 4, 32, 2


def make_batches(count):
    """Batches of pieces of documents, and the characters that come next. The last piece of a document is filled up with PADDING."""
    words, pieces = random.Random(0), []
    while len(pieces) < count * BATCH:
        sentences = [f"{words.choice(('Ann', 'Ben', 'Clara', 'Dev'))} {words.choice(('sees', 'takes', 'sells', 'wants'))} "
                     f"{words.choice(('a book', 'two pens', 'the old clock'))}. " for _ in range(words.randint(2, 20))]
        pieces += torch.tensor(list("".join(sentences).encode())).split(LENGTH + 1)
    padded = nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=PADDING)[:count * BATCH]
    return [(piece[:, :-1], piece[:, 1:]) for piece in padded.split(BATCH)]


class Attention(nn.Module):
    """Causal attention whose queries and keys are normalized, so that their products stay small."""

    def __init__(self, eps, norm_in_fp32):
        super().__init__()
        self.eps, self.norm_in_fp32 = eps, norm_in_fp32
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def normalized(self, x):
        wide = x.float() if self.norm_in_fp32 else x
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps)).to(x.dtype)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = nn.functional.scaled_dot_product_attention(self.normalized(q), self.normalized(k), v, is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, eps, norm_in_fp32):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(WIDTH), Attention(eps, norm_in_fp32)
        self.norm2 = nn.RMSNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False))

    def forward(self, x, padding):
        x = x + self.attention(self.norm1(x)).masked_fill(padding, 0)
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, eps=1e-8, norm_in_fp32=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(eps, norm_in_fp32) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, tokens):
        padding = (tokens == PADDING)[..., None]
        x = (self.tokens(tokens) + self.positions.weight).masked_fill(padding, 0)
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.norm(x))


def loss_of(model, batch):
    tokens, targets = batch
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=PADDING)


def train(model, optimizer, scaler, batches):
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    for step, batch in enumerate(batches, 1):
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        warm_up.step()
        if step % 20 == 0:
            print(f"step {step:3}: loss {loss.item():.3f}, loss scale {scaler.get_scale():g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="gpt")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--eps", type=float, default=1e-8)
    parser.add_argument("--norm-in-fp32", action="store_true")
    given = parser.parse_args()

    torch.manual_seed(0)
    model = GPT(given.eps, given.norm_in_fp32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu")
    with ulpscope.record(f"{given.name}.h5", model, optimizer, scaler, overwrite=True):
        train(model, optimizer, scaler, make_batches(given.steps))
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    torch.save(states, f"{given.name}.pt")
    print(ulpscope.report(f"{given.name}.h5"))


if __name__ == "__main__":
    main()
