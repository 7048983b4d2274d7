"""The forward algorithm of a hidden Markov model in logarithms: states that cannot be are -Inf, and logsumexp takes them in."""

import torch
from torch import nn

import ulpscope


class Model(nn.Module):
    """States in a row, from each of which one goes on or stays."""

    def __init__(self, states=5, symbols=6):
        super().__init__()
        self.emission, self.leave = nn.Parameter(0.1 * torch.randn(states, symbols)), nn.Parameter(torch.zeros(states))

    def forward(self, symbols):
        emission = self.emission.log_softmax(1)[:, symbols]
        stay, leave = nn.functional.logsigmoid(-self.leave), nn.functional.logsigmoid(self.leave)
        log = torch.full((5, symbols.shape[0]), float("-inf"))
        log[0] = 0
        log = log + emission[:, :, 0]
        for time in range(1, symbols.shape[1]):
            entered = torch.cat([torch.full((1, symbols.shape[0]), float("-inf")), (log + leave[:, None])[:-1]])
            log = torch.logaddexp(log + stay[:, None], entered) + emission[:, :, time]
        return -torch.logsumexp(log, 0).mean()


def train(path):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(15):
            symbols = (torch.arange(8) + torch.randint(0, 2, (16, 1))) % 6
            loss = model(symbols)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
