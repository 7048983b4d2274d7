"""A language model on conversations, where the labels of what the user said are -100: a batch without an answer has the mean of
nothing, 0 / 0, as its loss. Gradients are 0 there, and training goes on unharmed."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "step": 4,
    "op": "nll_loss_forward",
    "steps": 1,
    "loss_breaks": 4,
    "because": "cross_entropy divides by the number of labels that are not ignored, which is 0; its backward gives such rows 0",
    "fix": "leave out batches without labels",
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(24, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.head = nn.Linear(32, 24)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(15):
            tokens = torch.randint(0, 24, (4, 9))
            labels = tokens.roll(-1, 1)
            labels[:, : 9 if step == 4 else 4] = -100
            if fixed and (labels == -100).all():
                continue
            loss = nn.functional.cross_entropy(model(tokens).view(-1, 24), labels.view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
