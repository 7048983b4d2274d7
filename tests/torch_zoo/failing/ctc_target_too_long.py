"""A speech model with CTC: one utterance is shorter than its text, no alignment is possible, and the loss is Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "_ctc_loss",
    "step": 4,
    "loss_breaks": 4,
    "because": "the probability of a text of 8 letters in 5 frames is 0, and the gradient of its logarithm NaN",
    "fix": "zero_infinity=True",
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gru, self.head = nn.Conv1d(12, 24, 3, padding=1), nn.GRU(24, 24, batch_first=True), nn.Linear(24, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x)).transpose(1, 2)
        return self.head(self.gru(x)[0]).log_softmax(-1)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CTCLoss(zero_infinity=fixed)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            frames = torch.full((4,), 20)
            if step == 4:
                frames[1] = 5
            text = torch.randint(1, 10, (4, 8))
            logs = model(torch.randn(4, 12, 20))
            loss = criterion(logs.transpose(0, 1), text, frames, torch.full((4,), 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
