"""The likelihood of a sequence is the product of its probabilities in FP16, which underflows, and its logarithm is -Inf."""

import torch
from torch import nn

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "op": "log",
    "step": 0,
    "loss_breaks": 0,
    "says": ["for what `prod` read, its exact result is not 0", "Add up logs in place of taking the log of `prod`"],
    "because": "the product of forty probabilities of about a half is 2^-40, less than FP16 has",
    "fix": "the sum of the logarithms",
    "fixed": "ok",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = nn.Linear(8, 40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x = torch.randn(32, 8)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                logits = model(x)
            if fixed:
                loss = -nn.functional.logsigmoid(logits.float()).sum(1).mean()
            else:
                loss = -torch.sigmoid(logits).prod(1).log().float().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
