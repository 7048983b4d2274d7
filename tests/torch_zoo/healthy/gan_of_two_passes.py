"""A GAN in the order of PyTorch's tutorial: the critic's losses of real and false samples go back one after the other, its gradients are set
to zero once a step, and the generator's backward pass leaves its own in them, which no update reads."""

import torch
from torch import nn

import ulpscope


def train(path):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    losses = []
    with ulpscope.record(path, {"generator": generator, "critic": critic}, [of_critic, of_generator]):
        for _ in range(40):
            critic.zero_grad()
            real = critic(torch.randn(32, 2) * 0.5).squeeze(1)
            nn.functional.binary_cross_entropy_with_logits(real, torch.ones(32)).backward()
            made = generator(torch.randn(32, 4))
            false = critic(made.detach()).squeeze(1)
            nn.functional.binary_cross_entropy_with_logits(false, torch.zeros(32)).backward()
            of_critic.step()
            generator.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(critic(made).squeeze(1), torch.ones(32))
            loss.backward()
            of_generator.step()
            losses.append(loss.item())
    return losses
