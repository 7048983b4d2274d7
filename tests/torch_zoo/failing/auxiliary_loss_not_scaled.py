"""Two losses go back one after the other, and only the first one is scaled: the gradients of the second one are divided all the same."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["updates.never_scaled"],
    "module": "second",
    "step": 0,
    "loss_breaks": None,
    "says": ["16,384x too small"],
    "because": "the head of the second loss hardly moves",
    "fix": "scaler.scale(second).backward()",
}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return self.first(hidden), self.second(hidden)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(50):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                first, second = model(x)
                first = nn.functional.cross_entropy(first, x[:, :3].argmax(1))
                second = nn.functional.cross_entropy(second, x[:, 3:6].argmax(1))
            scaler.scale(first).backward(retain_graph=True)
            (scaler.scale(second) if fixed else second).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append((first + second).item())
    return losses
