"""A policy with an entropy bonus written out: p * log(p) is 0 * -Inf where an action is masked and its probability is exactly 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "log",
    "step": 0,
    "loss_breaks": 0,
    "says": ["log(0)"],
    "because": "masked actions have the probability 0, whose logarithm is -Inf, and 0 * -Inf is NaN",
    "fix": "torch.distributions.Categorical's way: the logarithm of a probability that is clamped",
    "pasted": "advice.keep_argument",
}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))

    def forward(self, state, allowed):
        return self.body(state).masked_fill(~allowed, float("-inf")).softmax(-1)


def play(policy, optimizer, losses, fixed, paste):
    for _ in range(12):
        state = torch.randn(32, 6)
        allowed = torch.rand(32, 5) > 0.2
        allowed[:, 0] = True
        probabilities = policy(state, allowed)
        action = torch.multinomial(probabilities.detach(), 1)
        advantage = state.sum(1)
        if paste:
            log = paste(x=probabilities)["x"]
        else:
            log = torch.log(probabilities.clamp_min(1e-8) if fixed else probabilities)
        entropy = -(probabilities * log).sum(-1)
        loss = -(advantage * log.gather(1, action).squeeze(1)).mean() - 0.01 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def train(path, fixed=False, paste=None):
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    losses = []
    try:
        with ulpscope.record(path, policy, optimizer):
            play(policy, optimizer, losses, fixed, paste)
    except RuntimeError:  # multinomial refuses probabilities of NaN, in the second step
        pass
    return losses
