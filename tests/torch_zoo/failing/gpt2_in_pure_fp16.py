"""A GPT-2 of transformers, loaded in FP16 and trained by AdamW as it is: eps is 0 in FP16, and small second moments are, too."""

import torch
import transformers

import ulpscope

TRUTH = {
    "verdict": "broken",
    "causes": ["range.nonfinite"],
    "step": 0,
    "loss_breaks": 1,
    "because": "AdamW keeps its states in the type of the weights: 0.001 g^2 and 1e-8 both round to 0, and m / 0 is Inf",
    "fix": "FP32 weights under BF16 autocast",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    if not fixed:
        model.half()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(6):
            tokens = torch.randint(0, 40, (4, 12))
            with torch.autocast("cpu", torch.bfloat16, enabled=fixed):
                loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
