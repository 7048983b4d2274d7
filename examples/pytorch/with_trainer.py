"""Hugging Face's Trainer and a small GPT-2 made from a config, recorded by a callback: `python with_trainer.py`.

It needs transformers and accelerate, and downloads nothing."""

import torch
import transformers

import ulpscope
from ulpscope.torch.callbacks import TrainerCallback


class Counting(torch.utils.data.Dataset):
    """Sequences that count on from any token."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (index + torch.arange(16)) % 64
        return {"input_ids": tokens, "labels": tokens}


transformers.set_seed(0)
config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
args = transformers.TrainingArguments("trainer", per_device_train_batch_size=8, gradient_accumulation_steps=2, num_train_epochs=3,
                                      learning_rate=3e-3, bf16=True, use_cpu=True, report_to=[], save_strategy="no",
                                      logging_strategy="no", disable_tqdm=True)

with TrainerCallback("trainer.h5", overwrite=True) as callback:
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=Counting(), callbacks=[callback])
    trainer.train()

print(ulpscope.report("trainer.h5"))
