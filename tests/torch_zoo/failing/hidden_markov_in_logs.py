"""The forward algorithm of a hidden Markov model in logarithms: states that cannot be reached yet are -Inf, and the backward pass of
logaddexp(-Inf, -Inf) is NaN."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "sub",
    "step": 0,
    "loss_breaks": 1,
    "says": ["logaddexp", "Inf - Inf", "`first full` fills in the Inf"],
    "because": "-Inf is meant, and harmless forward; backward, logaddexp takes exp(-Inf - -Inf), so that the first gradients are NaN",
    "fix": "-1e30 for -Inf",
}


class Model(nn.Module):
    """States in a row, from each of which one goes on or stays."""

    def __init__(self, impossible, states=5, symbols=6):
        super().__init__()
        self.impossible = impossible
        self.emission, self.leave = nn.Parameter(0.1 * torch.randn(states, symbols)), nn.Parameter(torch.zeros(states))

    def forward(self, symbols):
        emission = self.emission.log_softmax(1)[:, symbols]
        stay, leave = nn.functional.logsigmoid(-self.leave), nn.functional.logsigmoid(self.leave)
        log = torch.full((5, symbols.shape[0]), self.impossible)
        log[0] = 0
        log = log + emission[:, :, 0]
        for time in range(1, symbols.shape[1]):
            entered = torch.cat([torch.full((1, symbols.shape[0]), self.impossible), (log + leave[:, None])[:-1]])
            log = torch.logaddexp(log + stay[:, None], entered) + emission[:, :, time]
        return -torch.logsumexp(log, 0).mean()


def train(path, fixed=False):
    torch.manual_seed(0)
    model = Model(-1e30 if fixed else float("-inf"))
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
