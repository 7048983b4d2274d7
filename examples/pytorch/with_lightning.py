"""A LightningModule, recorded by a callback: `python with_lightning.py`. It needs lightning."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ulpscope
from ulpscope.torch.callbacks import LightningCallback


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


pl.seed_everything(0, verbose=False)
x = torch.randn(512, 8)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 32, shuffle=True)
trainer = pl.Trainer(accelerator="cpu", precision="bf16-mixed", max_epochs=3, gradient_clip_val=1.0, logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                     callbacks=[LightningCallback("lightning.h5", overwrite=True)])
trainer.fit(Classifier(), loader)

print(ulpscope.report("lightning.h5"))
