"""Masked language modelling with a BERT of transformers: in a small batch no token was chosen, and the loss is the mean of nothing."""

import torch
import transformers

import ulpscope

TRUTH = {
    "verdict": "warning",
    "causes": ["range.nonfinite"],
    "step": 3,
    "op": "nll_loss_forward",
    "steps": 1,
    "loss_breaks": 3,
    "because": "all labels are -100 in step 3; gradients are 0 there, and the weights stay finite",
    "fix": "one token at least is chosen",
}


def train(path, fixed=False):
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                max_position_embeddings=16))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(8):
            tokens = torch.randint(5, 50, (2, 10))
            chosen = torch.rand(2, 10) < 0.3
            if step == 3:
                chosen[:] = False
            if fixed:
                chosen[:, 0] = True
            labels = tokens.masked_fill(~chosen, -100)
            loss = model(input_ids=tokens.masked_fill(chosen, 4), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
