"""A loss of the eigenvectors of a matrix with two equal eigenvalues: their backward divides by the difference, 0."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "module": "",
    "step": 0,
    "loss_breaks": None,
    "because": "eigh's derivative has 1 / (l_i - l_j), and two columns of zeros have the eigenvalue 0 both",
    "fix": "a diagonal of different small numbers added to the matrix",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    keep = torch.tensor([1.0, 1, 1, 0, 0])
    losses = []
    try:
        with ulpscope.record(path, model, optimizer):
            for _ in range(8):
                x = model(torch.randn(32, 6)) * keep
                covariance = x.T @ x / 32
                if fixed:
                    covariance = covariance + torch.diag(1e-3 * torch.arange(5.0))
                _, vectors = torch.linalg.eigh(covariance)
                loss = (vectors[:, -1] * torch.arange(5.0)).sum() ** 2 + (vectors**4).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    except torch.linalg.LinAlgError:  # of a matrix of NaN, in the second step
        pass
    return losses
