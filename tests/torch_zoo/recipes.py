"""Sixty healthy trainings, generated: policies of precision, optimizers, accumulation and checkpointing, each on one of four models, every
other one with evaluations between its steps."""

import itertools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ulpscope

CLASSES, STEPS = 4, 24

POLICIES = ("fp32", "bf16", "fp16")
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.03, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=3e-3, amsgrad=True, weight_decay=1e-4),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5),
}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(12, 32), nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x, run):
        return self.head(run(self.block, torch.relu(self.first(x))))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Conv1d(1, 16, 3, padding=1), nn.Sequential(nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv1d(16, 16, 3, 2))
        self.head = nn.Linear(16 * 5, CLASSES)

    def forward(self, x, run):
        return self.head(run(self.block, self.first(x[:, None])).flatten(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.position = nn.Parameter(0.3 * torch.randn(12, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x, run):
        return self.head(run(self.block, self.embed(x[..., None]) + self.position).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.block, self.head = nn.GRU(3, 24, batch_first=True), nn.Sequential(nn.Linear(24, 24), nn.Tanh()), nn.Linear(24, CLASSES)

    def forward(self, x, run):
        return self.head(run(self.block, self.gru(x.view(-1, 4, 3))[0][:, -1]))


MODELS = (Mlp, Conv, Attention, Recurrent)


def plainly(block, x):
    return block(x)


def checkpointed(block, x):
    return checkpoint(block, x, use_reentrant=False)


def batch(count):
    x = torch.randn(count, 12)
    return x, x.view(count, CLASSES, 3).sum(2).argmax(1)


class Recipe:
    def __init__(self, number, policy, optimizer, micro_batches, runs_blocks):
        self.policy, self.optimizer, self.micro_batches, self.runs_blocks = policy, optimizer, micro_batches, runs_blocks
        self.model, self.evaluates = MODELS[(number + number // 4) % len(MODELS)], number % 2 == 0
        parts = [self.model.__name__.lower(), policy, optimizer]
        parts += [f"accumulates{micro_batches}"] if micro_batches > 1 else []
        parts += ["checkpoint"] if runs_blocks is checkpointed else []
        parts += ["evaluates"] if self.evaluates else []
        self.name = "-".join(parts)

    def train(self, path):
        torch.manual_seed(0)
        model = self.model()
        optimizer = OPTIMIZERS[self.optimizer](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13, growth_interval=12, enabled=self.policy == "fp16")
        narrow = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.policy]
        losses = []
        with ulpscope.record(path, model, optimizer, scaler) as run:
            for step in range(STEPS):
                total = 0.0
                for _ in range(self.micro_batches):
                    x, y = batch(16)
                    with torch.autocast("cpu", narrow or torch.bfloat16, enabled=narrow is not None):
                        loss = nn.functional.cross_entropy(model(x, self.runs_blocks), y) / self.micro_batches
                    scaler.scale(loss).backward()
                    total += loss.item()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses.append(total)
                if self.evaluates and step % 8 == 7:
                    model.eval()
                    with torch.no_grad():
                        x, y = batch(64)
                        accuracy = (model(x, plainly).argmax(1) == y).float().mean()
                    run.metric("val_accuracy", accuracy.item(), kind="evaluation_accuracy")
                    model.train()
        return losses


RECIPES = [Recipe(number, *each) for number, each in enumerate(itertools.product(POLICIES, OPTIMIZERS, (1, 3), (plainly, checkpointed)))]
