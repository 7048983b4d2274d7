"""Fine-tuning of a frozen backbone: the head is replaced, for classes of one's own, after the optimizer was made, which has the
parameters of the old one."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["run.no_better_than_guessing"],
    "loss_breaks": None,
    "says": ["A gradient came to `head.", "no update was recorded", "the parameters that the model has now"],
    "because": "the optimizer steps over parameters that are frozen or gone, and none of its has a gradient",
    "fix": "the head is replaced before the optimizer is made",
    "fixed": "ok",
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Classifier()
    model.backbone.requires_grad_(False)
    if fixed:
        model.head = nn.Linear(32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if not fixed:
        model.head = nn.Linear(32, 3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(50):
            x = torch.randn(32, 16)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
