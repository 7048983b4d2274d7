"""A function with a backward pass of its own, which computes in FP32 under autocast: `python custom_function.py`.

The square of a number from 256 on exceeds 65,504, the largest number of FP16. cast_inputs casts the inputs of the function to
FP32 and turns autocast off in it; custom_bwd has autocast off in backward() too."""

import torch
from torch import nn

import ulpscope

device = "cuda" if torch.cuda.is_available() else "cpu"


class Normalize(torch.autograd.Function):
    """Rows divided by their length."""

    @staticmethod
    @torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32)
    def forward(ctx, x):
        length = (x * x).sum(1, keepdim=True).sqrt()
        result = x / length
        ctx.save_for_backward(result, length)
        return result

    @staticmethod
    @torch.amp.custom_bwd(device_type=device)
    def backward(ctx, gradient):
        result, length = ctx.saved_tensors
        return (gradient - result * (gradient * result).sum(1, keepdim=True)) / length


class Matcher(nn.Module):
    """Images and texts, as vectors of length 1: those of one pair should lie close."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(128, 64), nn.Linear(48, 64)

    def forward(self, images, texts):
        return Normalize.apply(self.image(images)) @ Normalize.apply(self.text(texts)).T


torch.manual_seed(0)
to_image, to_text = torch.randn(8, 128), torch.randn(8, 48)
model = Matcher().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
losses = []

with ulpscope.record("custom_function.h5", model, optimizer, scaler, overwrite=True):
    for step in range(40):
        things = torch.randn(32, 8)
        images, texts = 255 * (things @ to_image), things @ to_text  # images as bytes are, which nobody divided by 255
        with torch.autocast(device, torch.float16):
            likeness = model(images.to(device), texts.to(device))
        loss = nn.functional.cross_entropy(likeness.float() / 0.1, torch.arange(32, device=device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())

print(ulpscope.report("custom_function.h5"))
