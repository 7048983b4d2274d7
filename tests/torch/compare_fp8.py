#!/usr/bin/env python3
"""FP8 beside PyTorch: encodings bit for bit where both define them, products within the bound of their additions.

usage: compare_fp8.py RUN_FP8
RUN_FP8 is the program that runs ours. Exits with 77 where PyTorch or numpy cannot be imported.

Both round to nearest even; beyond the largest value ours saturates, and PyTorch's casts give NaN or Inf, so values are compared up to
there. The product is compared with PyTorch's in FP64 of the same factors, scaled back by FP32 inverses.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; FP8 is compared with PyTorch where numpy and torch can be imported")
    sys.exit(77)

TYPES = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
U32 = 2.0**-24


def encodings(values, name):
    return torch.from_numpy(values).to(TYPES[name][0]).view(torch.uint8).numpy()


def values_of(encoded, name):
    return torch.from_numpy(encoded).view(TYPES[name][0]).double().numpy()


class Folder:
    def __init__(self, program, path):
        self.program, self.path = program, pathlib.Path(path)

    def write(self, name, values):
        values.astype(np.float32).tofile(self.path / name)
        return str(self.path / name)

    def run(self, *arguments):
        result = str(self.path / "result")
        subprocess.run([self.program, *arguments, result], check=True)
        return pathlib.Path(result).read_bytes()


def numbers(rng, largest):
    """Every BF16 number up to the largest, the FP32 numbers next to them (midpoints are among the first), and random ones."""
    bf16 = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    bf16 = bf16[np.isfinite(bf16)]
    near = np.concatenate([bf16, np.nextafter(bf16, np.float32(np.inf)), np.nextafter(bf16, np.float32(-np.inf))])
    drawn = (rng.standard_normal(200_000) * np.exp2(rng.uniform(-20, 16, 200_000))).astype(np.float32)
    all_numbers = np.concatenate([near, drawn])
    return all_numbers[np.abs(all_numbers) <= largest]


def compare_encodings(folder, rng, name):
    largest = TYPES[name][1]
    x = numbers(rng, largest)
    data = np.frombuffer(folder.run("quantize", name, folder.write("x", x)), np.uint8)
    at_one, at_current, scale = data[: x.size], data[x.size : 2 * x.size], data[2 * x.size :].view(np.float32)[0]
    wrong = int((at_one != encodings(x, name)).sum())
    expected = np.float32(largest) / np.abs(x).max()
    wrong += int(scale != expected)
    wrong += int((at_current != encodings(np.clip(x * scale, -largest, largest), name)).sum())
    print(f"{name}: {2 * x.size} encodings, {wrong} differ")
    return wrong


def quantized(x, name):
    scale = np.float32(TYPES[name][1]) / np.abs(x).max()
    return values_of(encodings(np.clip(x * scale, -TYPES[name][1], TYPES[name][1]), name), name), np.float64(np.float32(1) / scale)


def compare_products(folder, rng, left, right):
    wrong = 0
    for m, k, n in [(1, 1, 1), (7, 33, 5), (64, 100, 48), (3, 2000, 20)]:
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k)))
        data = folder.run("multiply", left, right, str(m), str(k), str(n), folder.write("a", a), folder.write("b", b))
        ours = np.frombuffer(data, np.float32).reshape(m, n)
        (qa, sa), (qb, sb) = quantized(a, left), quantized(b, right)
        truth = (torch.from_numpy(qa) @ torch.from_numpy(qb.T.copy())).numpy() * sa * sb
        terms = k + 2  # the products, and two scales
        bound = terms * U32 / (1 - terms * U32) * (np.abs(qa) @ np.abs(qb.T)) * sa * sb + U32 * np.abs(truth) * 2
        wrong += int((~(np.abs(ours - truth) <= bound)).sum())
    print(f"{left} x {right}: {wrong} elements beyond the bound")
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(sys.argv[1], path)
        wrong = sum(compare_encodings(folder, rng, name) for name in TYPES)
        wrong += sum(compare_products(folder, rng, left, right) for left, right in [("e4m3", "e4m3"), ("e5m2", "e4m3")])
    sys.exit(1 if wrong else 0)


main()
