"""Features of an encoder are detached on their way to the head, for a plot, and stay so: the encoder gets no gradient."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "ok",
    "causes": [],
    "loss_breaks": None,
    "says": ["No gradient came to encoder.0.weight, encoder.0.bias, encoder.2.weight and 1 more in any step", "detach()"],
    "because": "detach() stands between the encoder and the loss, so that only the head learns",
    "fix": "the features are not detached",
    "fixed": "ok",
}


class Classifier(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(40, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU())
        self.head, self.fixed = nn.Linear(4, 4), fixed

    def forward(self, x):
        features = self.encoder(x)
        self.last_features = features.detach()
        return self.head(features if self.fixed else self.last_features)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Classifier(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(60):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(4):
                labels = torch.randint(0, 4, (16,))
                x = torch.randn(16, 40)
                x[:, :4] += 3 * nn.functional.one_hot(labels, 4) * torch.tensor([1.0, -1, 1, -1])
                loss = nn.functional.cross_entropy(model(x), labels)
                (loss / 4).backward()
                total += loss.item() / 4
            optimizer.step()
            losses.append(total)
    return losses
