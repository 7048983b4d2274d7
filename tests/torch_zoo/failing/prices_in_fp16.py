"""A dataset hands out prices of houses in FP16 to save memory: some are above 65,504, and become Inf."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "step": 0,
    "loss_breaks": 0,
    "says": ["exceeds 65,504 (FP16 max)", "Divide or normalize the values before they become FP16"],
    "because": "FP16 ends at 65,504, and the Huber loss of an infinite target is Inf, though its gradient is not",
    "fix": "standardized prices",
}


class Houses(Dataset):
    def __init__(self, fixed):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(320, 6, generator=generator)
        self.prices = 60_000 + 4_000 * self.x[:, :1]
        if fixed:
            self.prices = (self.prices - self.prices.mean()) / self.prices.std()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.prices[index].half()


def train(path, fixed=False):
    torch.manual_seed(0)
    loader = DataLoader(Houses(fixed), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(3):
            for x, price in loader:
                loss = functional.huber_loss(model(x), price.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses
