"""A convolutional network under FP16 autocast with a scaler that starts too high and skips its first steps, as it is meant to."""

import torch
from torch import nn

import ulpscope


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def train(path):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(40):
            y = torch.randint(0, 4, (16,))
            x = torch.randn(16, 1, 12, 12)
            for sample, label in enumerate(y):
                x[sample, 0, 3 * label : 3 * label + 3] += 2
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
