"""torch.nn.TransformerEncoder under BF16 autocast, with dropout and a padding mask."""

import torch
from torch import nn

import ulpscope


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 32, padding_idx=0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        x = x.masked_fill(padding[..., None], 0.0)
        return self.head(x.sum(1) / (~padding).sum(1, keepdim=True))


def train(path):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for _ in range(20):
            tokens = torch.randint(1, 40, (16, 10))
            tokens = tokens * (torch.arange(10) < torch.randint(3, 11, (16, 1)))
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 3, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses
