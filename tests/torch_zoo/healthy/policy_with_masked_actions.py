"""REINFORCE with actions that are not allowed at -Inf, by torch.distributions.Categorical, whose loss is negative as often as not."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, policy, optimizer):
        for _ in range(25):
            state = torch.randn(32, 6)
            allowed = torch.rand(32, 5) > 0.2
            allowed[:, 0] = True
            choice = torch.distributions.Categorical(logits=policy(state).masked_fill(~allowed, float("-inf")))
            action = choice.sample()
            reward = (action == state[:, :5].argmax(1)).float()
            advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
            loss = -(advantage * choice.log_prob(action)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
