"""A model in BF16 with no FP32 weights beside it, fine-tuned at a small learning rate: most updates are below half an ulp."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["updates.lost"],
    "loss_breaks": None,
    "because": "Adam's updates of 1e-5 are less than half an ulp of every weight above 0.005, and w + dw == w",
    "fix": "FP32 weights under BF16 autocast",
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Classifier()
    if not fixed:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            tokens = torch.randint(0, 50, (16, 12))
            with torch.autocast("cpu", torch.bfloat16, enabled=fixed):
                loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 0] > 25).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
