"""A program divides gradients by the loss scale, and so does the scaler when it steps: updates of SGD are 65,536 times too small."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["updates.clipped_away"],
    "loss_breaks": None,
    "says": ["Gradients were divided by the loss scale once more", "65,500x in each of 40 steps, which is the loss scale"],
    "because": "unscale_() divides the gradients, and the program does so again",
    "fix": "the program leaves that to the scaler",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu")
    x = torch.randn(96, 16)
    labels = x[:, :3].argmax(1)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(40):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if not fixed:
                for parameter in model.parameters():
                    parameter.grad /= scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
