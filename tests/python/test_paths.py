"""Both ways in which ops are seen tell one and the same."""

import unittest

from recorded import NEEDS_TORCH, Case, recording, torch

if torch is not None:
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        """Rows of words without a batch: PyTorch itself adds biases of batches in another way under a dispatch mode."""

        def __init__(self):
            super().__init__()
            self.embedding, self.norm, self.drop = nn.Embedding(13, 16), nn.LayerNorm(16), nn.Dropout(0.1)
            self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 13)
            self.register_buffer("mask", torch.triu(torch.full((6, 6), float("-inf")), 1))

        def forward(self, x):
            x = self.embedding(x)
            q, k, v = (each.view(6, 2, 8).transpose(0, 1) for each in self.qkv(self.norm(x)).chunk(3, dim=-1))
            y = torch.softmax(q @ k.transpose(1, 2) / 8**0.5 + self.mask, -1) @ v
            z = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            return self.head(self.drop(x + (y + z).transpose(0, 1).reshape(6, 16)))


def runs():
    """Name, model, input, target and type of autocast."""
    torch.manual_seed(5)
    image, words = torch.randn(4, 3, 8, 8), torch.randint(0, 13, (6,))
    for dtype in (None, torch.bfloat16, torch.float16):
        yield "mlp", nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)), torch.randn(5, 6), torch.arange(5) % 4, dtype
        yield ("convnet", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)),
               image, torch.arange(4), dtype)
        yield "attention", Attention(), words, words, dtype


def record(model, x, y, dtype, adapter):
    """Three steps with Adam, the second over two micro-batches and clipped."""
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=dtype is torch.float16)
    with recording(model, optimizer, scaler, adapter=adapter) as run:
        for step in range(3):
            optimizer.zero_grad()
            for _ in range(2 if step == 1 else 1):
                with torch.autocast("cpu", dtype, enabled=dtype is not None):
                    loss = functional.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
            if step == 1:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad():
            model(x)
    return run


def told(run):
    """All that a recorder was told, with ids by the order of calls, which do not hang on the process."""
    rows = []
    for step in run.made[0].steps:
        rows.append((step.number, step.passes, step.result._replace(seconds=0, peak_memory=0)))
        for call in step.calls:
            rows.append((call.id, call.call))
            for slot, output in sorted(call.outputs.items()):
                values = output.values.double().nan_to_num(-12345.0).flatten().tolist()
                rows.append((call.call.name, slot, output.label, output.dtype, output.shape, output.cast_from is None, values,
                             call.gradient_of.get(slot), slot in call.updates))
    return rows


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Paths(Case):
    maxDiff = None

    def test_both_ways_tell_one_and_the_same(self):
        for name, model, x, y, dtype in runs():
            with self.subTest(model=name, dtype=dtype):
                start = {key: value.clone() for key, value in model.state_dict().items()}
                both = []
                for adapter in ("callbacks", "dispatch"):
                    model.load_state_dict(start)
                    model.train()
                    both.append(told(record(model, x, y, dtype, adapter)))
                self.assertGreater(len(both[0]), 100)
                for one, other in zip(*both):
                    self.assertEqual(one, other)
                self.assertEqual(len(both[0]), len(both[1]))


if __name__ == "__main__":
    unittest.main()
