"""A batch is normalized row by row in FP16 before the model sees it: one row is constant, and the eps beside its deviation is 0 in
FP16."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 7,
    "loss_breaks": 7,
    "says": ["0 / 0 = NaN", "In FP16 an eps up to 2^-25 is 0", "constant_row_normalized_in_fp16.py"],
    "because": "1e-8 lies below half of FP16's smallest subnormal number, so that the deviation of 0 is divided by",
    "fix": "an eps of 1e-4",
}


def train(path, fixed=False):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 4)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eps = 1e-4 if fixed else 1e-8
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(30):
            x = torch.randn(64, 9).half()
            y = x[:, :4].argmax(1)
            if step == 7:
                x[3] = 0.25
            x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + eps)
            loss = nn.functional.cross_entropy(model(x).float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
