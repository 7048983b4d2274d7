"""FP16 autocast was added to a script, with a gradient scaler for its loss, and optimizer.step() stayed as it was: gradients hold
the loss scale, and SGD takes steps that are 65,536 times too long."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.still_scaled"],
    "step": 0,
    "loss_breaks": 1,
    "says": ["in step 0 the loss scale was 65,536", "scaler.step(optimizer)"],
    "because": "the loss is scaled, and nothing unscales the gradients",
    "fix": "scaler.step(optimizer) and scaler.update()",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(15):
            labels = torch.randint(0, 10, (16,))
            images = torch.randn(16, 1, 8, 8) + 0.3 * labels[:, None, None, None]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            if fixed:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            losses.append(loss.item())
    return losses
