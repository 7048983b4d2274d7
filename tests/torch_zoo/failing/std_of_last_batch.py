"""Advantages normalized by their standard deviation: the last batch of the data has one element, and std divides by n - 1 = 0."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "op": "std",
    "step": 8,
    "loss_breaks": 8,
    "because": "65 samples in batches of 8 leave one for the ninth",
    "fix": "drop_last=True",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    states = torch.randn(65, 4)
    actions, returns = torch.randint(0, 3, (65,)), states.sum(1)
    actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    losses = []
    with ulpscope.record(path, {"actor": actor, "critic": critic}, optimizer):
        for _ in range(2):
            for state, action, reward in DataLoader(TensorDataset(states, actions, returns), 8, drop_last=fixed):
                value = critic(state).squeeze(1)
                advantage = (reward - value).detach()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                log_probability = actor(state).log_softmax(-1).gather(1, action[:, None]).squeeze(1)
                loss = -(advantage * log_probability).mean() + 0.5 * (reward - value).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses
