"""model.half() with a batch norm on pixels of 0 to 4095: the running variance, an FP16 buffer, becomes Inf in place, and the model
that trains well is of no use in evaluation."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "norm",
    "op": "native_batch_norm",
    "loss_breaks": None,
    "because": "the variance of pixels up to 4,095 is about 1.4e6, and a tenth of it exceeds 65,504 in the first step; in training the "
    "batch's own variance is used, which is FP32",
    "step": 0,
    "fix": "pixels divided by 4,095",
    "pasted": "advice.wide_statistics",
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv, self.head = nn.BatchNorm2d(1), nn.Conv2d(1, 4, 3, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.conv(self.norm(x))).mean((2, 3)))


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    model = Model().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if paste:
        paste(model=model)
    losses = []
    with ulpscope.record(path, model, optimizer) as run:
        for step in range(12):
            y = torch.randint(0, 2, (16,))
            x = 4095 * torch.rand(16, 1, 12, 12)
            x[:, :, :, ::2] *= (1 - y).view(-1, 1, 1, 1)
            if fixed:
                x = x / 4095
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.half()).float(), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 4 == 3:
                model.eval()
                with torch.no_grad():
                    accuracy = (model(x.half()).argmax(1) == y).float().mean()
                run.metric("val_accuracy", accuracy.item(), kind="evaluation_accuracy")
                model.train()
    return losses
