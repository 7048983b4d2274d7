"""X-ray pictures with 16 bits a pixel become FP16 before they are divided by 65,535: white is Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "_to_copy",
    "step": 3,
    "loss_breaks": 3,
    "says": ["65,535 exceeds 65,504 (FP16 max)", "before they become FP16", "sixteen_bit_pixels.py:31"],
    "because": "FP16 makes Inf of 65,535, the pixels of one picture",
    "fix": "the pixels are divided before they become FP16",
}


class Pictures(torch.utils.data.Dataset):
    def __init__(self, fixed):
        self.pixels = torch.randint(0, 60000, (96, 1, 10, 10), generator=torch.Generator().manual_seed(0)).float()
        self.pixels[52, 0, 2:4, 5] = 65535.0
        self.labels, self.fixed = (self.pixels.mean((1, 2, 3)) > 30000).long(), fixed

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return (self.pixels[i] / 65535).half() if self.fixed else self.pixels[i].half() / 65535, self.labels[i]


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(2):
            for pixels, labels in torch.utils.data.DataLoader(Pictures(fixed), batch_size=16):
                with torch.autocast("cpu", torch.float16):
                    loss = nn.functional.cross_entropy(model(pixels), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses
