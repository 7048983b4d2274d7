"""A convolutional network whose step has four micro-batches, with its gradients clipped: `python accumulation.py`.

Clipping must see gradients without the loss scale: unscale_ stands before it."""

import torch
from torch import nn

import ulpscope

STEPS, MICRO_BATCHES, SIZE = 30, 4, 8


def make_batch():
    """Images of 12 x 12 noisy pixels, with a bright row or a bright column in each."""
    images, labels = 0.3 * torch.randn(SIZE, 1, 12, 12), torch.randint(2, (SIZE,))
    for image, label, place in zip(images, labels, torch.randint(12, (SIZE,))):
        bright = image[0, place] if label else image[0, :, place]
        bright += 1
    return images, labels


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Conv2d(1, 8, 5), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler(device)
losses = []

with ulpscope.record("accumulation.h5", model, optimizer, scaler, overwrite=True):
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(MICRO_BATCHES):
            images, labels = make_batch()
            with torch.autocast(device, torch.float16):
                loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device)) / MICRO_BATCHES
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(total)

print(ulpscope.report("accumulation.h5"))
