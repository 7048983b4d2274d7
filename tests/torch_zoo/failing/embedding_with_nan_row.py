"""Pretrained vectors, of which one word has NaN: nothing happens until a batch has that word."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "embedding",
    "op": "source",
    "step": 0,
    "loss_breaks": 6,
    "because": "row 77 of the table that was loaded is NaN from the start, and word 77 is first in the batch of step 6",
    "fix": "zeros for rows that are not finite",
}


class Classifier(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(vectors, freeze=False)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, tokens):
        return self.head(self.gru(self.embedding(tokens))[0][:, -1])


def train(path, fixed=False):
    torch.manual_seed(0)
    vectors = torch.randn(80, 16)
    vectors[77] = float("nan")
    if fixed:
        vectors = torch.where(vectors.isfinite(), vectors, 0.0)
    model = Classifier(vectors)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(12):
            tokens = torch.randint(0, 77, (8, 6))
            if step == 6:
                tokens[2, 4] = 77
            loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 0] % 2).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
