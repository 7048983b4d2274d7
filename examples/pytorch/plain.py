"""A classifier in FP16 under autocast with a GradScaler, evaluated after each epoch: `python plain.py`."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope


def make_data(count):
    """Points of two spirals, which no straight line parts."""
    labels = torch.randint(2, (count,))
    radius = 0.3 + 1.7 * torch.rand(count)
    angle = 3 * radius + torch.pi * labels
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return TensorDataset(points + 0.03 * torch.randn(count, 2), labels)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
train_data, test_data = DataLoader(make_data(640), 64, shuffle=True), DataLoader(make_data(256), 128)
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(device)
losses = []


def train():
    model.train()
    for x, y in train_data:
        with torch.autocast(device, torch.float16):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())


@torch.no_grad()
def accuracy():
    model.eval()
    with torch.autocast(device, torch.float16):
        right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in test_data)
    return right / len(test_data.dataset)


with ulpscope.record("plain.h5", model, optimizer, scaler, overwrite=True) as run:
    for epoch in range(8):
        train()
        run.metric("test_accuracy", accuracy(), kind="evaluation_accuracy")

print(ulpscope.report("plain.h5"))
