"""Hashes of the outputs' bits, and the first output that differs between two trainings."""

import json
import os
import subprocess
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, torch

import ulpscope

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")

MASK = (1 << 64) - 1


def mix(left, right):
    """The finaliser of SplitMix64, as docs/numerics.md has it."""
    z = ((left ^ (right * 0x9E3779B97F4A7C15 & MASK)) + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


COEFFICIENTS = [mix(0x62697473, word) | 1 for word in range(1024)]


def hash_of(tensor):
    tensor = tensor.detach().contiguous()
    data = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()
    total = 0
    for block in range(0, len(data), 4096):
        part = data[block : block + 4096]
        words = numpy.frombuffer(part + bytes(-len(part) % 4), "<u4")
        total += mix(sum(int(word) * c for word, c in zip(words, COEFFICIENTS)) & MASK, block // 4096)
    return mix(total & MASK, len(data))


class Model(torch.nn.Module if torch else object):
    def __init__(self, eps=1e-5, activation=None, norm=None):
        super().__init__()
        self.tokens = torch.nn.Embedding(50, 24)
        self.norm = norm or torch.nn.LayerNorm(24, eps=eps)
        self.inner = torch.nn.Linear(24, 96)
        self.activation = activation or torch.nn.GELU()
        self.head = torch.nn.Linear(96, 50)

    def forward(self, ids):
        return self.head(self.activation(self.inner(self.norm(self.tokens(ids)))))


class Halved(torch.nn.Module if torch else object):
    """Multiplies by a number."""

    def __init__(self, factor):
        super().__init__()
        self.factor = torch.tensor(factor)

    def forward(self, input):
        return input * self.factor


class Turned(torch.nn.Module if torch else object):
    """Multiplies by a square matrix as it is, or turned round."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns
        self.register_buffer("square", torch.arange(96 * 96.0).reshape(96, 96) / 9216)

    def forward(self, input):
        return torch.addmm(torch.zeros(96), input.reshape(-1, 96), self.square.t() if self.turns else self.square).reshape(input.shape)


class Narrowed(torch.nn.GELU if torch else object):
    """Goes through FP16 on the way."""

    def forward(self, input):
        return super().forward(input.half().float())


@unittest.skipIf(torch is None or h5py is None, NEEDS_TORCH if torch is None else "needs h5py and numpy")
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class FirstDifference(Case):
    def train(self, folder, name, level="stats,bits", dtype=None, ids=None, before=None, in_between=None, rate=1e-3, late_rate=None, of=None, sample=1, **settings):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        model = Model(**settings)
        if before:
            before(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        seen, generator = {}, torch.Generator().manual_seed(3)
        for module_name in ("tokens", "norm", "inner", "activation", "head"):
            getattr(model, module_name).register_forward_hook(
                lambda _, __, output, module_name=module_name: seen.setdefault(module_name, []).append(output.detach().clone())
            )
        with ulpscope.record(f"{folder}/{name}.h5", model, optimizer, level=level, sample=sample):
            for step in range(3):
                if step == 1 and late_rate:
                    optimizer.param_groups[0]["lr"] = late_rate
                batch = torch.randint(0, 50, (4, 16), generator=generator)
                if ids:
                    ids(step, batch)
                seen.setdefault("ids", []).append(batch.clone())
                if in_between:
                    in_between(step, model)
                with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return f"{folder}/{name}.h5", seen

    def rows(self, path):
        """{(step, op's name, module, slot): hash}"""
        with h5py.File(path) as file:
            table = {name: file["bits"][name][:] for name in ("step", "tensor", "hash")}
            tensors = {name: file["tensors"][name][:] for name in ("op", "slot")}
            ends = file["strings"]["end"][:]
            texts = bytes(file["string_bytes"]["byte"][:])
            text = lambda row: texts[int(ends[row - 1]) if row else 0 : int(ends[row])].decode()
            ops = [(text(name), text(module)) for name, module in zip(file["ops"]["name"][:], file["ops"]["module"][:])]
        return {
            (int(step), *ops[tensors["op"][tensor]], int(tensors["slot"][tensor])): int(value)
            for step, tensor, value in zip(table["step"], table["tensor"], table["hash"])
        }

    def test_hashes_are_those_of_the_tensors(self):
        with tempfile.TemporaryDirectory() as folder:
            for dtype in (None, torch.bfloat16):
                with self.subTest(dtype=dtype):
                    path, seen = self.train(folder, f"run{dtype is None}", dtype=dtype)
                    rows = self.rows(path)
                    for step in range(3):
                        self.assertEqual(rows[step, "input", "", 0], hash_of(seen["ids"][step]))
                        self.assertEqual(rows[step, "embedding", "tokens", 0], hash_of(seen["tokens"][step]))
                        self.assertEqual(rows[step, "native_layer_norm", "norm", 0], hash_of(seen["norm"][step]))
                        for module in ("inner", "head"):
                            self.assertEqual(seen[module][step].dtype, dtype or torch.float32)
                            self.assertEqual(rows[step, "addmm", module, 0], hash_of(seen[module][step]))
                        self.assertEqual(rows[step, "gelu", "activation", 0], hash_of(seen["activation"][step]))

    def test_no_hashes_where_nobody_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _ = self.train(folder, "run", level="stats")
            self.assertEqual(self.rows(path), {})

    def first(self, folder, a, b):
        """(step, module, name of the op) of the first output that differs, and what is said of it; None where none does."""
        done = subprocess.run([os.environ["ULPSCOPE_PROGRAM"], "compare", a, b, "--json"], capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        found = next((each for each in json.loads(done.stdout)["findings"] if each["code"] == "compare.first_op"), None)
        if found is None:
            return None
        key = found["evidence"][0]["key"]
        return (key["step"], key.get("module", ""), key["op_name"]), found["title"]

    def test_steps_that_were_not_recorded_are_no_evidence(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, _ = self.train(folder, "plain", sample=2)
            other, _ = self.train(folder, "other", sample=2, rate=2e-3)
            (step, _, name), title = self.first(folder, plain, other)
            self.assertEqual((step, name), (0, "adam_update"), title)
            other, _ = self.train(folder, "late", sample=2, rate=1e-3, late_rate=2e-3)
            (step, _, _), title = self.first(folder, plain, other)
            self.assertEqual(step, 2)
            self.assertIn("not recorded", title)
            self.assertNotIn("rounding", title)

    def test_planted_changes_are_named(self):
        def flip(step, model):
            if step == 1:
                with torch.no_grad():
                    model.inner.weight.view(torch.int32)[5, 3] ^= 1

        def flip_at_the_start(model):
            with torch.no_grad():
                model.head.weight.view(torch.int32)[5, 3] ^= 1

        def other_id(step, batch):
            if step == 2:
                batch[1, 2] = (batch[1, 2] + 1) % 50

        planted = (
            ({"eps": 1e-4}, (0, "norm", "native_layer_norm"), "eps is 0.0001 instead of 1e-05"),
            ({"dtype": torch.bfloat16}, (0, "inner", "addmm"), "its type is bf16 instead of f32"),
            ({"activation": torch.nn.GELU(approximate="tanh")} if torch else {}, (0, "activation", "gelu_tanh"), "it computed activation gelu)"),
            ({"activation": torch.nn.SiLU()} if torch else {}, (0, "activation", "silu"), "computed activation gelu"),
            ({"ids": other_id}, (2, "", "input"), "given"),
            ({"before": flip_at_the_start}, (0, "head", "source"), "given"),
            ({"in_between": flip}, (0, "inner", "bitwise_xor_"), "computed inner.weight by bitwise_xor_"),
            ({"activation": torch.nn.LeakyReLU(0.2), "of": torch.nn.LeakyReLU()}, (0, "activation", "leaky_relu"), "is 0.2 instead of its default"),
            ({"activation": Halved(1.0), "of": Halved(0.5)}, (0, "activation", "mul"), "reads other numbers"),
            ({"activation": Turned(0), "of": Turned(1)}, (0, "activation", "addmm"), "other views of its inputs"),
            ({"activation": Narrowed()}, (0, "activation", "gelu"), "an input of its op is cast to f16, f32 first"),
            ({"rate": 2e-3}, (0, "tokens", "adam_update"), "learning rate"),
        )
        with tempfile.TemporaryDirectory() as folder:
            plain, _ = self.train(folder, "plain")
            again, _ = self.train(folder, "again")
            self.assertIsNone(self.first(folder, plain, again))
            for i, (change, place, says) in enumerate(planted):
                with self.subTest(change=str(change)):
                    path, _ = self.train(folder, f"run{i}", **change)
                    base = self.train(folder, f"base{i}", activation=change["of"])[0] if "of" in change else plain
                    found, title = self.first(folder, base, path)
                    self.assertEqual(found, place, title)
                    self.assertIn(says, title)


if __name__ == "__main__":
    unittest.main()
