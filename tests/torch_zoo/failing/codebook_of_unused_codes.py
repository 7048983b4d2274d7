"""A codebook whose codes move to the mean of the vectors that chose them: a code that nobody chose has the mean 0 / 0, which the loss of the
next step reads from the buffer."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "quantizer",
    "op": "div",
    "step": 0,
    "loss_breaks": 1,
    "says": ["First NaN: `quantizer` (div, forward), step 0", "0 / 0 = NaN"],
    "because": "of 24 codes most are chosen by none of 32 vectors",
    "fix": "the count is at least 1, and codes without vectors stay where they are",
}


class Quantizer(nn.Module):
    def __init__(self, codes, width, fixed):
        super().__init__()
        self.fixed = fixed
        self.register_buffer("codebook", 2 * torch.randn(codes, width))

    def forward(self, x):
        chosen = (x[:, None] - self.codebook[None]).pow(2).sum(-1).argmin(1)
        code = self.codebook[chosen]
        with torch.no_grad():
            members = nn.functional.one_hot(chosen, len(self.codebook)).to(x.dtype)
            count = members.sum(0)[:, None]
            if self.fixed:
                mean = torch.where(count > 0, (members.t() @ x) / count.clamp_min(1), self.codebook)
            else:
                mean = (members.t() @ x) / count
            self.codebook.lerp_(mean, 0.2)
        return x + (code - x).detach(), (x - code.detach()).pow(2).mean()


class AutoEncoder(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.quantizer = Quantizer(24, 4, fixed)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, x):
        code, commitment = self.quantizer(self.encoder(x))
        return self.decoder(code), commitment


def train(path, fixed=False):
    torch.manual_seed(0)
    model = AutoEncoder(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    centres, losses = torch.randn(6, 12), []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            x = centres[torch.randint(0, 6, (32,))] + 0.1 * torch.randn(32, 12)
            again, commitment = model(x)
            loss = nn.functional.mse_loss(again, x) + 0.25 * commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
