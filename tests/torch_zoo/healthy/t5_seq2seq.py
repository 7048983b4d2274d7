"""A T5 of transformers, encoder and decoder, in FP32 by Adafactor's cousin Adagrad."""

import torch
import transformers

import ulpscope


def train(path):
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).train()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(6):
            tokens = torch.randint(2, 40, (4, 8))
            labels = tokens.masked_fill(torch.arange(8) >= torch.randint(4, 9, (4, 1)), -100)
            loss = model(input_ids=tokens, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
