"""Contrastive learning of a model in FP16: the eps of normalize, 1e-12, is 0 there, and a blank image is 0 / 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "div",
    "step": 4,
    "loss_breaks": 4,
    "says": ["0 / 0", "In FP16 an eps up to 2^-25 is 0"],
    "because": "a blank image has an embedding of zeros, and max(0, 1e-12) is 0 in FP16",
    "fix": "normalize(x, eps=1e-4)",
}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.Conv2d(8, 16, 3, padding=1, stride=2, bias=False)
        self.head = nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return self.head(torch.relu(self.conv2(torch.relu(self.conv1(x)))).mean((2, 3)))


def train(path, fixed=False):
    torch.manual_seed(3)
    model = Encoder().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            labels = torch.randint(0, 4, (16,))
            images = torch.randn(16, 1, 8, 8) + labels[:, None, None, None]
            if step == 4:
                images[5] = 0
            embeddings = nn.functional.normalize(model(images.half()), dim=1, eps=1e-4 if fixed else 1e-12)
            similarity = (embeddings @ embeddings.t()).float() / 0.2 - 1e4 * torch.eye(16)
            positive = (labels[:, None] == labels[None]).float() - torch.eye(16)
            loss = -(nn.functional.log_softmax(similarity, 1) * positive).sum() / positive.sum().clamp(min=1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
