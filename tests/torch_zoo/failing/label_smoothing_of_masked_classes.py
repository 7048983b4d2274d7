"""Classes that are not there are masked with -Inf, and label smoothing takes the mean of the logarithms of all probabilities."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "masked_fill",
    "step": 0,
    "loss_breaks": 0,
    "says": ["adds up the logarithms of all probabilities", "label smoothing is over all classes"],
    "because": "without smoothing the masked classes are in no loss, and with it each of them adds Inf",
    "fix": "no label smoothing",
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 10)

    def forward(self, x, absent):
        return self.head(torch.relu(self.body(x))).masked_fill(absent, float("-inf"))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    absent = torch.arange(10) >= 8
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            logits = model(torch.randn(64, 8), absent)
            loss = nn.functional.cross_entropy(logits, torch.randint(0, 8, (64,)), label_smoothing=0.0 if fixed else 0.1)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
