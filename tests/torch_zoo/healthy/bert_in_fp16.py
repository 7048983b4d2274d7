"""A BERT of transformers that classifies padded sentences, under FP16 autocast with a scaler."""

import torch
import transformers

import ulpscope


def train(path):
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                     max_position_embeddings=16, num_labels=3)
    model = transformers.BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    losses = []
    with ulpscope.record(path, model, optimizer, scaler):
        for _ in range(10):
            tokens = torch.randint(5, 50, (8, 10))
            mask = (torch.arange(10) < torch.randint(3, 11, (8, 1))).long()
            with torch.autocast("cpu", torch.float16):
                loss = model(input_ids=tokens * mask, attention_mask=mask, labels=tokens[:, 1] % 3).loss
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses
