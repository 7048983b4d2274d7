"""Reports of a small transformer in PyTorch, healthy and broken, in three precisions. ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM
say which library and program."""

import json
import math
import os
import subprocess
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, torch

import ulpscope

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
MODULE = torch.nn.Module if torch is not None else object
if torch is not None:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode
else:
    TorchDispatchMode = object

WIDTH, HEADS, LENGTH, TOKENS = 32, 2, 12, 16


class Attention(MODULE):
    """Written out, with a causal mask of -inf in a buffer, as tutorials have it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask)
        self.register_buffer("cache", torch.empty(LENGTH, WIDTH).fill_(math.nan))  # memory that nobody reads

    def forward(self, x):
        batch = x.shape[0]
        q, k, v = self.qkv(x).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + self.mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, LENGTH, WIDTH))


class Block(MODULE):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.feed = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Transformer(MODULE):
    def __init__(self, between=None):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, WIDTH)
        self.position = torch.nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.between = between or torch.nn.Identity()
        self.head = torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 0:
                x = self.between(x)
        return self.head(x)


class Wide(MODULE):
    """A layer that is left out of autocast."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.inner(x.float())


class Casts(TorchDispatchMode):
    """Counts the bytes that casts read and write, but for a scaler's own from and to FP64."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._to_copy.default and made.dtype != args[0].dtype and torch.float64 not in (made.dtype, args[0].dtype):
            self.bytes += made.numel() * (made.element_size() + args[0].element_size())
        return made


class Break(MODULE):
    """From its tenth call on, an op that breaks."""

    def __init__(self, op):
        super().__init__()
        self.op, self.calls = op, 0

    def forward(self, x):
        self.calls += 1
        return self.op(x) if self.calls > 9 else x


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Reports(Case):
    PRECISIONS = (("fp32", None), ("bf16", "bfloat16"), ("fp16", "float16"))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train(self, precision, between=None, steps=14):
        """Copies the token before; returns the report and the losses."""
        name, lower = precision
        torch.manual_seed(0)
        model = Transformer(between)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=name == "fp16")
        losses = []
        path = os.path.join(self.folder, f"{name}.h5")
        with self.watch(ulpscope.record(path, model, optimizer, scaler, overwrite=True)):
            for _ in range(steps):
                tokens = torch.randint(0, TOKENS, (8, LENGTH))
                targets = tokens.roll(1, 1)
                optimizer.zero_grad()
                with torch.autocast("cpu", getattr(torch, lower or "bfloat16"), enabled=lower is not None):
                    logits = model(tokens)
                    loss = torch.nn.functional.cross_entropy(logits.view(-1, TOKENS), targets.reshape(-1))
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())
        return ulpscope.report(path), losses

    def test_a_healthy_transformer(self):
        for precision in self.PRECISIONS:
            with self.subTest(precision=precision[0]):
                report, losses = self.train(precision)
                self.assertTrue(all(map(math.isfinite, losses)))
                self.assertEqual(report.verdict, "ok", report.text)
                self.assertNotIn("held NaN", report.text)

    def test_what_autocast_leaves_in_fp32(self):
        """FLOPs as FlopCounterMode counts them, bytes as a dispatch mode sees them."""
        model, tokens = Transformer(Wide()), torch.randint(0, TOKENS, (8, LENGTH))
        with FlopCounterMode(display=False) as counter:
            model(tokens)
        flops = {module: sum(counts.values()) for module, counts in counter.get_flop_counts().items()}
        share = flops["Transformer.between"] / flops["Global"]
        self.assertGreater(share, 0.01)
        for precision in self.PRECISIONS[1:]:
            with self.subTest(precision=precision[0]):
                casts = Casts()
                with casts:
                    report, _ = self.train(precision, Wide(), 4)
                found, = (finding for finding in report.findings if finding["code"] == "autocast.coverage")
                self.assertEqual(found["severity"], "info")
                evidence, = found["evidence"]
                self.assertEqual(evidence["key"]["module"], "between.inner")
                self.assertAlmostEqual(evidence["values"]["share_of_flops"]["value"], share, 12)
                said = found["title_sentences"]
                self.assertAlmostEqual(said[0]["values"]["share"]["value"], share, 12)
                self.assertEqual(said[0]["values"]["format"], {"format": precision[0].upper()})
                self.assertEqual(said[1]["values"]["bytes"]["value"], casts.bytes / 4)
        for between, precision in ((None, self.PRECISIONS[2]), (Wide(), self.PRECISIONS[0])):
            report, _ = self.train(precision, between, 2)
            self.assertNotIn("autocast.coverage", [finding["code"] for finding in report.findings])

    def test_what_was_not_recorded_stands_beside_the_verdict(self):
        embedding = torch.nn.Embedding(9, 4, sparse=True)
        optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
        path = os.path.join(self.folder, "sparse.h5")
        with self.watch(ulpscope.record(path, embedding, optimizer, modules="*")) as run:
            for _ in range(12):
                optimizer.zero_grad()
                embedding(torch.tensor([1, 2])).square().sum().backward()
                optimizer.step()
                with run.pause():
                    embedding(torch.tensor([3]))
        told = {row["text"]: row["value"] for row in ulpscope.load(path).table("events") if row["kind"] == "metric"}
        left, calls = told["recording.not_read.sparse"], told["recording.calls"]
        self.assertGreater(left, 0)
        text = " ".join(ulpscope.report(path).text.split())
        self.assertIn(f"what was not recorded (modules=*), {left:.0f} of {left + calls:.0f} calls (on tensors that are sparse), "
                      "12 blocks in which recording was paused", text)
        info = json.loads(subprocess.run([os.environ["ULPSCOPE_PROGRAM"], "info", path, "--json"], capture_output=True, check=True).stdout)
        self.assertEqual(info["calls_recorded"], calls)
        self.assertTrue(0 < info["time_spent_in_recording"] < 1)
        self.assertEqual(told["recording.timed_steps"], 2)  # the second and the tenth
        table, = (table for table in info["tables"] if table["name"] == "not_recorded")
        self.assertEqual([row["values"]["count"] for row in table["rows"]], [left, 12])
        with self.assertRaisesRegex(ValueError, "the recording's own"):
            run.metric("recording.calls", 1)

    def test_a_whole_recording_says_nothing_of_itself(self):
        report, _ = self.train(self.PRECISIONS[1], steps=3)
        checked = [phrase["id"] for sentence in report.data["checked_sentences"] for phrase in sentence["values"]["matters"]]
        self.assertFalse([each for each in checked if each in ("checked.calls_not_read", "checked.filtered", "checked.calls_refused",
                                                               "checked.compiled", "checked.other_threads", "checked.paused")])

    def test_a_logarithm_of_zero_in_the_middle(self):
        for precision in self.PRECISIONS:
            with self.subTest(precision=precision[0]):
                report, losses = self.train(precision, Break(lambda x: x * torch.log(x.detach() - x.detach())))
                self.assertEqual(next(i for i, loss in enumerate(losses) if not math.isfinite(loss)), 9)
                self.assertEqual(report.verdict, "broken", report.text)
                first = report.text.split("\n\n")[0]
                self.assertIn("step 9", first)
                self.assertIn("between log", first.replace("\n", " "), report.text)
                self.assertNotIn("mask", first)

    def test_products_that_leave_fp16(self):
        """Finite numbers, an infinite product: told without a capture, and no loss scale is blamed."""
        report, losses = self.train(("fp16", "float16"), Break(lambda x: (x.half() * 1e3) * 1e4))
        self.assertFalse(math.isfinite(losses[9]))
        self.assertEqual(report.verdict, "broken", report.text)
        text = " ".join(report.text.split())
        self.assertIn("First Inf: `between` (second mul, forward), step 9", text)
        self.assertIn("437.5 * 10,000 = 4,375,000 exceeds 65,504 (FP16 max)", text)

    def test_labels_that_nothing_can_learn(self):
        """A loss by log_softmax and nll is told from one by guessing; a sum over the batch has no such level."""
        for reduction, rate, is_told in (("mean", 0.01, True), ("sum", 3e-4, False)):
            with self.subTest(reduction=reduction):
                torch.manual_seed(0)
                model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
                optimizer = torch.optim.SGD(model.parameters(), rate)
                path, losses = os.path.join(self.folder, "labels.h5"), []
                with self.watch(ulpscope.record(path, model, optimizer, overwrite=True)):
                    for _ in range(120):
                        optimizer.zero_grad()
                        loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(0, 10, (32,)), reduction=reduction)
                        loss.backward()
                        optimizer.step()
                        losses.append(loss.item())
                report = ulpscope.report(path)
                self.assertEqual("no better than guessing" in report.text.replace("\n", " "), is_told, report.text)
                if is_told:
                    self.assertGreater(min(losses[-10:]), 0.97 * math.log(10))
                    self.assertIn("guessing among 10 classes", " ".join(report.text.split()))

    def test_the_same_ids_in_all_precisions(self):
        """compare pairs the ops of two precisions: every op of the model in FP32 is there in BF16."""
        ids = {}
        for precision in self.PRECISIONS[:2]:
            self.train(precision, steps=2)
            ops = ulpscope.load(os.path.join(self.folder, f"{precision[0]}.h5")).table("ops")
            ids[precision[0]] = {row["id"] for row in ops if row["phase"] in ("forward", "loss", "optimizer") and row["kind"] != "cast"}
        self.assertEqual(ids["fp32"] - ids["bf16"], set())


if __name__ == "__main__":
    unittest.main()
