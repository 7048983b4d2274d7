"""A speech enhancer with a loss of magnitudes, sqrt(re^2 + im^2) of torch.stft: a silent stretch has 0, where sqrt has no
derivative. Complex tensors are not recorded, and what is computed from them is no data."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "div",
    "step": 4,
    "loss_breaks": 5,
    "says": ["/ 0 = "],
    "because": "in step 4 the spectrum of the silent stretch is 0, and sqrt'(0) is Inf in the backward pass",
    "fix": "sqrt(x + 1e-8)",
}


def magnitude(x, fixed):
    spectrum = torch.view_as_real(torch.stft(x.squeeze(1), 64, 16, window=torch.hann_window(64), return_complex=True))
    power = spectrum.pow(2).sum(-1)
    return torch.sqrt(power + 1e-8) if fixed else torch.sqrt(power)


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4, bias=False), nn.Tanh(), nn.Conv1d(16, 1, 9, padding=4, bias=False))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(10):
            clean = torch.sin(torch.linspace(0, 100, 512) * (1 + torch.rand(8, 1)))[:, None]
            noisy = clean + 0.1 * torch.randn(8, 1, 512)
            if step == 4:
                noisy[1, :, :300] = 0
            output = model(noisy)
            loss = (magnitude(output, fixed) - magnitude(clean, fixed)).abs().mean() + (output - clean).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
