"""A loss of rotation angles by acos of a trace: a prediction that is exact has a cosine of 1, where acos has no derivative."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "step": 2,
    "loss_breaks": 3,
    "because": "acos'(1) = -1 / sqrt(1 - 1); the loss is finite in step 2, its gradient is not",
    "fix": "the cosine clamped to 1 - 1e-6",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(8):
            x = torch.randn(16, 4)
            target = nn.functional.normalize(torch.randn(16, 3), dim=1)
            direction = nn.functional.normalize(model(x), dim=1)
            cosine = (direction * target).sum(1)
            if step == 2:
                # One sample is predicted without an error, as rounding makes it now and then.
                cosine = torch.cat([cosine[:1] - cosine[:1].detach() + 1.0, cosine[1:]])
            limit = 1 - 1e-6 if fixed else 1.0
            loss = torch.acos(cosine.clamp(-limit, limit)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
