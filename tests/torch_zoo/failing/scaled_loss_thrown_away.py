"""What scaler.scale(loss) gives is thrown away, and the scaler divides gradients by a scale that they never had."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.never_scaled"],
    "step": 0,
    "loss_breaks": None,
    "says": ["65,536x too small", "no gradient comes from it"],
    "because": "each update of SGD is 65,536 times as short as it should be",
    "fix": "scaler.scale(loss).backward()",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu")
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(50):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            scaled = scaler.scale(loss)
            (scaled if fixed else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
