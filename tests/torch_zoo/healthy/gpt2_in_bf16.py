"""A GPT-2 of transformers with its own attention mask, under BF16 autocast, with padded batches."""

import torch
import transformers

import ulpscope


def train(path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(10):
            tokens = torch.randint(2, 40, (4, 12))
            tokens[:, 1::2] = tokens[:, ::2]
            mask = (torch.arange(12) < torch.randint(6, 13, (4, 1))).long()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
